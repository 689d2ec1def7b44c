"""The answer within a completion, without reasoning, chat templates' tokens and other turns.

Completions are text: a special token that a model wrote looks like one that the tokenizer made. A
token or tag counts as text in a string or comment of the program, in quotation marks, and between
words of a sentence.
"""

import re
from bisect import bisect
from collections.abc import Iterator, Sequence

from shared.extraction.languages import Language, Literals

_NAMES = r"(?:think|thinking|thoughts?|reasoning|scratchpad|reflection|seed:think)"
_TAG = re.compile(
    rf"(?P<closes></{_NAMES}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>)"
    rf"|<{_NAMES}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_ANSWER = re.compile(r"^[ \t]*<(?:answer|solution|final_answer)>", re.IGNORECASE | re.MULTILINE)

_ATTRIBUTES = r"(?:[ \t]+(?:to=[\w.]+|json|code|text))*[ \t]*(?:<\|constrain\|>\w*)?"
_CHANNEL = rf"<\|channel\|>(?P<%s>\w*){_ATTRIBUTES}(?:<\|message\|>)?"
_TOKEN = re.compile(
    r"(?P<header>(?:<\|(?:im_start|start_header_id|start)\|>|<start_of_turn>)[ \t]*"
    rf"(?P<role>[\w.]*){_ATTRIBUTES}(?:<\|end_header_id\|>)?"
    rf"(?:{_CHANNEL % 'channel'}|<\|message\|>)?)"
    rf"|{_CHANNEL % 'first_channel'}"
    r"|<\|(?P<name>[A-Za-z][\w -]{0,30})\|>|<｜(?P<wide>[^<>｜\n]{1,40})｜>"
    r"|(?P<mark><(?:end_of_turn|eos|bos|file_sep|end_of_utterance)>|</s>(?=[ \t]*$|\[INST)"
    r"|\[DONE\](?=[ \t]*$)|(?<![\w\])])\[/?INST\]|^<s>|^\[BEGIN\])",
    re.MULTILINE,
)
# Tokens that end a message; behind any other one it goes on.
_ENDS = re.compile(r"end|eo[stm](?![a-z])|\beod|return|stop|call|file_sep|fim|</s>|\[done\]")
_ASKS = frozenset(("user", "system", "developer", "human", "[inst]"))
_ANSWERS = frozenset(("", "assistant", "model", "bot", "[/inst]", "final", "tool outputs end"))
_OTHERS = frozenset(
    ("tool", "ipython", "observation", "analysis", "commentary", "tool outputs begin")
)
_TOOL_RESPONSE = re.compile(r"\s*<tool_response>")
# Harmony's channels when the server leaves the tokens out.
_FINAL_WORD = "assistantfinal"

_NEXT_QUESTION = re.compile(
    r"^(?:#{2,4}[ \t]*(?:Instruction|Question|Human|User)\b[^\n]{0,40}"
    r"|(?:Human|User|Instruction)[ \t]*:.*|You are an expert Python programmer.*"
    r"|(?P<asked>Question|Q|Problem)(?:[ \t]*\d+)?[ \t]*[:.].*)$",
    re.MULTILINE,
)
_REPLY = re.compile(r"^(?:#+[ \t]*)?(?:Answer|A|Solution|Response)\b[ \t]*:", re.MULTILINE)


def answers(text: str, language: Language) -> list[tuple[int, str]]:
    """The parts of a completion that can have the answer, with their offsets, the best first.

    These are the assistant's messages up to the first further question, the last one first; of a
    text with harmony's channels only final messages. Reasoning within them is blanked.
    """
    if text.startswith("analysis") and (final := text.rfind(_FINAL_WORD)) > 0:
        start = final + len(_FINAL_WORD)
        return [(start, text[start:])]
    text = _without_reasoning(text, language)
    return [
        (start, message)
        for start, end in _messages(text, language)
        for start, message in [_behind_reasoning(text, start, end, language)]
        if message.strip()
    ]


def before_next_question(text: str) -> str | None:
    """The text before a further question that the model made up; None if there is no such one."""
    begin = len(text) - len(text.lstrip())
    last_reply = None
    for match in _NEXT_QUESTION.finditer(text):
        if last_reply is None:
            last_reply = max((reply.start() for reply in _REPLY.finditer(text)), default=-1)
        if match.start() > begin and (not match["asked"] or last_reply > match.end()):
            return text[: match.start()]
    return None


def _is_mention(text: str, match: re.Match[str]) -> bool:
    """Whether a tag or token is in quotation marks or between words of a sentence."""
    start, end = match.span()
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    quoted = before[-1:] in ("'", '"', "`") and after[:1] in ("'", '"', "`", "\\")
    between = before.endswith(" ") and before[:1] not in ("", "\n", " ")
    return quoted or (between and after.startswith(" ") and after[1:].isalnum())


def _fences(text: str) -> list[int]:
    return [fence.end() for fence in _FENCE.finditer(text)]


def _in_block(fences: Sequence[int], start: int, end: int) -> bool:
    """Whether the last fence between two positions opens a block."""
    return (bisect(fences, end) - bisect(fences, start)) % 2 == 1


def _without_reasoning(text: str, language: Language) -> str:
    """Blank reasoning that a tag at the start of a line opens outside of code.

    It ends at the next closing tag; if there is none, at an ``<answer>`` tag or the end.
    """
    tags = [tag for tag in _TAG.finditer(text) if not _is_mention(text, tag)]
    if all(tag["closes"] for tag in tags):
        return text
    fences, literals = _fences(text), Literals(text, language)
    kept, position, opener = [], 0, None
    for tag in tags:
        if tag["closes"] and opener:
            kept += [text[position : opener.start()], _blank(text[opener.start() : tag.end()])]
            position, opener = tag.end(), None
            literals.restart(position)
        elif not (tag["closes"] or opener) and _begins_line(text, tag.start()):
            inside = _in_block(fences, position, tag.start()) or literals.around(tag.start())
            opener = None if inside else tag
    if opener:
        answer = _ANSWER.search(text, opener.end())
        end = answer.start() if answer else len(text)
        kept += [text[position : opener.start()], _blank(text[opener.start() : end])]
        position = end
    return "".join([*kept, text[position:]])


def _behind_reasoning(text: str, start: int, end: int, language: Language) -> tuple[int, str]:
    """The message, or what is behind its last closing tag, whose opening one is in the prompt."""
    message = text[start:end]
    closers = [tag for tag in _TAG.finditer(message) if tag["closes"]]
    behind = 0
    if closers:
        fences, literals = _fences(message), Literals(message, language)
    for tag in closers:
        in_code = _in_block(fences, behind, tag.start()) or bisect(fences, behind) == len(fences)
        inside = in_code and literals.around(tag.start())
        if not inside and not _is_mention(message, tag):
            behind = tag.end()
            literals.restart(behind)
    message = message[behind:]
    blank = len(message) - len(message.lstrip("\n"))
    return start + behind + blank, message[blank:]


def _messages(text: str, language: Language) -> list[tuple[int, int]]:
    """The places of the assistant's messages, the last one first."""
    messages: list[tuple[str, int, int]] = []
    role, start = "assistant", 0
    for token in _tokens(text, language):
        name = _role(token)
        if role in _ANSWERS and text[start : token.start()].strip():
            messages.append((role, start, token.start()))
        if name in _ASKS and messages and not _TOOL_RESPONSE.match(text, token.end()):
            role = "user"
            break
        start = token.end()
        if name in _ANSWERS | _ASKS | _OTHERS or token["header"]:
            role = name
        elif messages and _ENDS.search(name):
            role = "ended"
    if role in _ANSWERS and text[start:].strip():
        messages.append((role, start, len(text)))
    finals = [message for message in messages if message[0] == "final"]
    return [(start, end) for _, start, end in reversed(finals or messages)]


def _role(token: re.Match[str]) -> str:
    """The role or channel of a header; another token's name."""
    if token["header"]:
        return (token["channel"] or token["role"] or "").lower()
    name = token["first_channel"] or token["name"] or token["wide"] or token["mark"]
    return name.lower().replace("▁", " ")


def _tokens(text: str, language: Language) -> Iterator[re.Match[str]]:
    """The template's tokens, without those that are part of the program or of a sentence."""
    tokens = list(_TOKEN.finditer(text))
    if tokens:
        fences, literals = _fences(text), Literals(text, language)
    for token in tokens:
        literal = literals.around(token.start())
        if literal and literal[0][0] in "#/":
            # A comment may be the last words of a message, unless its block goes on.
            place = bisect(fences, token.end())
            closed = any(not text[i : i + 1].isalnum() for i in fences[place : place + 1])
            literal = literal if closed and _in_block(fences, 0, token.start()) else None
        if not literal and not _is_mention(text, token):
            yield token


def _begins_line(text: str, position: int) -> bool:
    return not text[max(0, position - 40) : position].rpartition("\n")[2].strip(" \t")


def _blank(text: str) -> str:
    """Text of the same length, so that offsets stay valid."""
    return "\n" * len(text)
