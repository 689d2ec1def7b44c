"""Final answer within a completion: reasoning, chat templates' tokens and further turns removed.

What is removed is replaced by newlines, so that offsets in the text stay valid.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPENS_REASONING = re.compile(
    r"^[ \t]*(?:<(?P<tag>think|thinking|thoughts?|reasoning|scratchpad|reflection|seed:think)>"
    r"|(?P<bracket>\[THINK\])|(?P<triangle>◁think▷)|(?P<thought><\|begin_of_thought\|>)"
    r"|(?P<channel><\|channel\|>(?:analysis|commentary)[^<\n]{0,80}<\|message\|>))",
    re.IGNORECASE | re.MULTILINE,
)
_CLOSING = {
    "bracket": "[/THINK]",
    "triangle": "◁/think▷",
    "thought": "<|end_of_thought|>",
    "channel": "<|end|>",
}
_CLOSES_REASONING = (
    r"(?:</(?:think|thinking|thoughts?|reasoning|scratchpad|seed:think)>|\[/THINK\]|◁/think▷"
    r"|<\|end_of_thought\|>)"
)
_STRAY_CLOSER = re.compile(
    rf"^[ \t]*{_CLOSES_REASONING}|{_CLOSES_REASONING}[ \t]*$", re.IGNORECASE | re.MULTILINE
)
# Where the final message begins, after those of analysis and of tools (harmony).
_FINAL = re.compile(r"(?:\A\s*|<\|start\|>assistant)<\|channel\|>final[^<\n]{0,80}<\|message\|>")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_OPENS_ANSWER = re.compile(r"^[ \t]*<(?:answer|solution|final_answer)>", re.I | re.MULTILINE)

_TOKEN = re.compile(
    r"<\|(?P<name>[A-Za-z][A-Za-z0-9_ -]{0,30})\|>|<｜(?P<wide>[^<>｜\n]{1,40})｜>"
    r"|<(?P<turn>start_of_turn|end_of_turn|eos|bos|file_sep|end_of_utterance)>"
    r"|(?P<mark></s>(?=[ \t]*$)|\[DONE\](?=[ \t]*$)|(?<![\w\])])\[/?INST\]|^<s>|^\[BEGIN\])",
    re.MULTILINE,
)
# Tokens that end the answer; behind any other one it goes on.
_ENDING = re.compile(
    r"end|eo[stm](?![a-z])|\beod|return|stop|call|file_sep|fim|</s>|\[done\]|\[inst\]|user|system"
)
_BEFORE_ROLE = frozenset({"im_start", "start_header_id", "start", "start_of_turn", "channel"})
_OF_THE_USER = frozenset({"user", "system", "[inst]"})
_HEADER = re.compile(r"[ \t]*([A-Za-z_]{0,20})[ \t]*(?=\n|<|\Z)")

_NEXT_TURN = re.compile(
    r"^(?:#{2,4}[ \t]*(?:Instruction|Question|Human|User)\b[^\n]{0,40}"
    r"|(?:Human|User|Instruction)[ \t]*:.*|You are an expert Python programmer.*"
    r"|(?P<asked>Question|Q|Problem)(?:[ \t]*\d+)?[ \t]*[:.].*)$",
    re.MULTILINE,
)
_REPLY = re.compile(r"^(?:#+[ \t]*)?(?:Answer|A|Solution|Response)\b[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Token:
    name: str
    start: int
    end: int

    @property
    def ends_answer(self) -> bool:
        if self.name in _BEFORE_ROLE:
            return True
        return self.name != "end_header_id" and _ENDING.search(self.name) is not None


def answer_text(text: str) -> str:
    """Blank reasoning and template tokens, and whatever follows the end of the answer's turn.

    Reasoning is the text between ``<think>`` (or a tag or token of the same meaning) at the start
    of a line and its closing tag; if it is not closed, the text up to an ``<answer>`` tag or the
    end. A closing tag that nothing opens, at the start or end of a line, ends reasoning that the
    chat template opened. A template's token within a quoted string is part of the code, and so is
    an opening tag within a fenced block.
    """
    final = max((found.end() for found in _FINAL.finditer(text)), default=0)
    text = _blank(text[:final]) + text[final:]
    return _without_tokens(_without_reasoning(text))


def before_next_turn(text: str) -> str | None:
    """The text before a further question that the model made up; None if there is no such one."""
    begin = len(text) - len(text.lstrip())
    last_reply = max((reply.start() for reply in _REPLY.finditer(text)), default=-1)
    for match in _NEXT_TURN.finditer(text):
        if match.start() > begin and (not match["asked"] or last_reply > match.end()):
            return text[: match.start()]
    return None


def _without_reasoning(text: str) -> str:
    kept, position, looked = [], 0, 0
    unclosed: set[str] = set()
    fences = 0
    while opener := _OPENS_REASONING.search(text, looked):
        fences += len(_FENCE.findall(text, looked, opener.start()))
        looked = opener.end()
        if fences % 2:
            continue
        kept.append(text[position : opener.start()])
        end = _end_of_reasoning(text, opener, unclosed)
        kept.append(_blank(text[opener.start() : end]))
        position = looked = end
    kept.append(text[position:])
    joined = "".join(kept)
    # Chat templates that write the opening tag themselves leave only the closing one.
    last = max((stray.end() for stray in _STRAY_CLOSER.finditer(joined)), default=0)
    return _blank(joined[:last]) + joined[last:]


def _end_of_reasoning(text: str, opener: re.Match[str], unclosed: set[str]) -> int:
    """Position behind the reasoning; ``unclosed`` collects the closing tags that do not follow."""
    kind = opener.lastgroup or "tag"
    closing = f"</{opener['tag']}>".lower() if kind == "tag" else _CLOSING[kind]
    for pattern in (re.escape(closing), _CLOSES_REASONING):
        if pattern not in unclosed:
            closer = re.compile(pattern, re.IGNORECASE).search(text, opener.end())
            if closer:
                return closer.end()
            unclosed.add(pattern)
    answer = _OPENS_ANSWER.search(text, opener.end())
    return answer.start() if answer else len(text)


def _without_tokens(text: str) -> str:
    """Blank template tokens and role names, turns of the user, and what follows the answer."""
    kept, position, started, skipping = [], 0, False, False
    for token in _tokens(text):
        segment = text[position : token.start]
        kept.append(_blank(segment) if skipping else segment)
        started = started or (bool(segment.strip()) and not skipping)
        if started and token.ends_answer:
            position = token.start
            skipping = True
            break
        position, role = _after_header(text, token)
        kept.append(_blank(text[token.start : position]))
        if role or token.name in _OF_THE_USER | {"assistant"}:
            skipping = (role or token.name) in _OF_THE_USER
        elif token.name == "[/inst]":
            skipping = False
    kept.append(_blank(text[position:]) if skipping else text[position:])
    return "".join(kept)


def _after_header(text: str, token: _Token) -> tuple[int, str]:
    """Position behind a token and the role that it names."""
    if token.name not in _BEFORE_ROLE:
        return token.end, ""
    header = _HEADER.match(text, token.end)
    return (header.end(), header[1].lower()) if header else (token.end, "")


def _tokens(text: str) -> Iterator[_Token]:
    line_start = quotes = counted = 0
    for match in _TOKEN.finditer(text):
        newline = text.rfind("\n", counted, match.start())
        if newline >= 0:
            line_start, quotes, counted = newline + 1, 0, newline + 1
        quotes += sum(text.count(quote, counted, match.start()) for quote in "\"'`")
        counted = max(match.start(), line_start)
        name = (match["name"] or match["wide"] or match["turn"] or match["mark"]).lower()
        name = name.replace("▁", " ")
        if quotes % 2 == 0 or _ends_line(text, match.end()):
            yield _Token(name, match.start(), match.end())


def _ends_line(text: str, position: int) -> bool:
    rest = text[position : position + 40].lstrip(" \t")
    return not rest or rest.startswith(("\n", "<|", "<｜", "</s>", "<end_of_turn>"))


def _blank(text: str) -> str:
    return "\n" * len(text)
