"""The answer within a completion, without reasoning, chat templates' tokens and other turns.

Completions are text: a special token that a model wrote looks like one that the tokenizer made. A
token or tag counts as text in a closed block, in quotation marks, and between words of a sentence.
"""

import re
from bisect import bisect

_NAMES = r"(?:think|thinking|thoughts?|reasoning|scratchpad|reflection|seed:think)"
_TAG = re.compile(
    rf"(?P<closes></{_NAMES}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>)"
    rf"|<{_NAMES}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>",
    re.IGNORECASE,
)
# Parts of tags and tokens: the patterns are slow, and few completions have any.
_TAG_SIGNS = (
    *("think>", "thinking>", "thought>", "thoughts>", "reasoning>", "scratchpad>", "reflection>"),
    *("think]", "think▷", "thought|>"),
)
_TOKEN_SIGNS = (
    *("<|", "<｜", "</s>", "<s>", "inst]", "[done]", "[begin]", "_of_", "<eos>", "<bos>"),
    "<file_sep>",
)
_FENCE = re.compile(r"`{3,}|~{3,}")
_LABEL = re.compile(r"[ \t]*\w")
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
# Tokens that end a message; after any other token it continues.
_ENDS = re.compile(r"end|eo[stm](?![a-z])|\beod|return|stop|call|file_sep|fim|</s>|\[done\]")
_ASKS = frozenset(("user", "system", "developer", "human", "[inst]"))
_ANSWERS = frozenset(
    ("", "assistant", "model", "bot", "[/inst]", "final", "tool outputs end", "start_response")
)
_OTHERS = frozenset(
    (
        *("tool", "ipython", "observation", "analysis", "commentary"),
        *("tool outputs begin", "start_thinking"),
    )
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


def answers(text: str) -> list[str]:
    """The parts of a completion that can have the answer, the best first.

    These are the assistant's messages up to the first further question, the last one first; of a
    text with harmony's channels only final messages. Reasoning is left out.
    """
    if text.startswith("analysis") and (final := text.rfind(_FINAL_WORD)) > 0:
        return [text[final + len(_FINAL_WORD) :]]
    text = _without_reasoning(text)
    parts = []
    for message in _messages(text):
        # The opening tag of reasoning may be in the prompt.
        tags = _outside_blocks(message, _matches(_TAG, message, _TAG_SIGNS))
        behind = max((tag.end() for tag in tags if tag["closes"]), default=0)
        if message[behind:].strip():
            parts.append(message[behind:].lstrip("\n"))
    return parts


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


def _matches(pattern: re.Pattern[str], text: str, signs: tuple[str, ...]) -> list[re.Match[str]]:
    """The tags or tokens of a text that are no part of a sentence."""
    lower = text.lower()
    matches = list(pattern.finditer(text)) if any(sign in lower for sign in signs) else []
    return [match for match in matches if not _is_mention(text, match)]


def _outside_blocks(text: str, matches: list[re.Match[str]]) -> list[re.Match[str]]:
    """Those tags or tokens that are not within a closed block."""
    fences = [fence.end() for fence in _FENCE.finditer(text)] if matches else []
    return [match for match in matches if not _in_block(text, fences, match)]


def _is_mention(text: str, match: re.Match[str]) -> bool:
    """Whether a tag or token is in quotation marks or between words of a sentence."""
    start, end = match.span()
    before, after = text[max(0, start - 3) : start], text[end : end + 2]
    quoted = before[-1:] in ("'", '"', "`") and before != "```" and after[:1].strip() != ""
    between = before.endswith(" ") and before[-2:-1] not in ("", "\n", " ")
    return quoted or (between and after.startswith(" ") and after[1:].isalnum())


def _in_block(text: str, fences: list[int], match: re.Match[str]) -> bool:
    """Whether the last fence opens a block, and the next one closes it: no label is behind it.

    A tag that fills its line is in a block only if an odd number of fences follows it. Else the
    last fence began a draft in the reasoning, which was never closed.
    """
    place = bisect(fences, match.end())
    if place % 2 == 0 or place == len(fences) or _LABEL.match(text, fences[place]):
        return False
    alone = _begins_line(text, match.start()) and text[match.end() : match.end() + 1] in ("", "\n")
    return not alone or (len(fences) - place) % 2 == 1


def _without_reasoning(text: str) -> str:
    """Leave out reasoning that a tag at the start of a line opens.

    It ends at the next closing tag; if there is none, at an ``<answer>`` tag or the end.
    """
    kept, position, opener = [], 0, None
    tags = _matches(_TAG, text, _TAG_SIGNS)
    outside = set(_outside_blocks(text, tags))
    for tag in tags:
        if tag["closes"] and opener:
            kept += [text[position : opener.start()], "\n"]
            position, opener = tag.end(), None
        elif not (tag["closes"] or opener) and tag in outside and _begins_line(text, tag.start()):
            opener = tag
    if opener:
        answer = _ANSWER.search(text, opener.end())
        end = answer.start() if answer else len(text)
        kept += [text[position : opener.start()], "\n"]
        position = end
    return "".join([*kept, text[position:]])


def _messages(text: str) -> list[str]:
    """The assistant's messages, the last one first."""
    messages: list[tuple[str, str]] = []
    role, start = "assistant", 0
    for token in _outside_blocks(text, _matches(_TOKEN, text, _TOKEN_SIGNS)):
        name = _role(token)
        if role in _ANSWERS and text[start : token.start()].strip():
            messages.append((role, text[start : token.start()]))
        if name in _ASKS and messages and not _TOOL_RESPONSE.match(text, token.end()):
            role = "user"
            break
        start = token.end()
        if name in _ANSWERS | _ASKS | _OTHERS or token["header"]:
            role = name
        elif messages and _ENDS.search(name):
            role = "ended"
    if role in _ANSWERS and text[start:].strip():
        messages.append((role, text[start:]))
    finals = [message for message in messages if message[0] == "final"]
    return [message for _, message in reversed(finals or messages)]


def _role(token: re.Match[str]) -> str:
    """The role or channel of a header; another token's name."""
    if token["header"]:
        return (token["channel"] or token["role"] or "").lower()
    name = token["first_channel"] or token["name"] or token["wide"] or token["mark"]
    return name.lower().replace("▁", " ")


def _begins_line(text: str, position: int) -> bool:
    return not text[max(0, position - 40) : position].rpartition("\n")[2].strip(" \t")
