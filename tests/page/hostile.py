"""Fixture of a run whose every text from a model, a program or a user is hostile (XSS)."""

import json
from collections.abc import Collection

from redis import Redis

from shared.case_records import SampleCases
from shared.config import load_config
from shared.ledger import Ledger
from shared.schemas import CaseResult, FailedCase, Problem, SampleId
from shared.statuses import FinalStatus
from tests.aggregator import runs
from tests.shared.ledgers import problem

# Each would set the global `canary`, or leave an element of the class `made`, where it is taken
# for anything but text. The address is one that no resolver knows.
_AWAY = "http://evil.invalid"
TEXTS = {
    "script": "<script class=made>canary=1</script>",
    "script_end": "</script><script class=made>canary=1</script><!--",
    "pre_end": "</pre></bdi></td></table><script class=made src=/static/../x.js></script>",
    "image": f"<img class=made src=x onerror=canary=1><img class=made src={_AWAY}/i.png>",
    "svg": "<svg class=made onload=canary=1><animate onbegin=canary=1 attributeName=x dur=1s>",
    "math": "<math class=made><mtext><table><mglyph><style><img src=x onerror=canary=1>",
    "details": "<details class=made open ontoggle=canary=1><summary autofocus onfocus=canary=1>",
    "video": "<video class=made><source onerror=canary=1></video>",
    "frame": "<iframe class=made srcdoc='<script>parent.canary=1</script>'></iframe>",
    "frame_js": "<iframe class=made src='javascript:parent.canary=1'></iframe>",
    "object": f"<object class=made data={_AWAY}></object><embed class=made src={_AWAY}>",
    "meta": f'<meta class=made http-equiv=refresh content="0;url={_AWAY}/m">',
    "base": f"<base class=made href={_AWAY}/><link class=made rel=stylesheet href={_AWAY}/c.css>",
    "style": f"<style class=made>@import url({_AWAY}/s); * {{display: none}}</style>",
    "form": f"<form class=made action={_AWAY}><button autofocus onfocus=canary=1>x",
    "attribute": "\" onmouseover=canary=1 autofocus onfocus=canary=1 x=\"' onclick='canary=1",
    "href": "javascript:canary=1",
    "link": '<a class=made href="javascript:canary=1">x</a>[x](javascript:canary=1)',
    "href_tab": "java\tscript:canary=1//%0Acanary=1",
    "data_url": "data:text/html,<script>top.canary=1</script>",
    "css": f'width:1px;background:url("{_AWAY}/b")}}*{{display:none',
    "template": "{{constructor.constructor('canary=1')()}} ${canary=1} <%= canary=1 %> #{canary=1}",
    "entities": "&lt;script&gt;canary=1&lt;/script&gt; &#60;img src=x onerror=canary=1&#62;",
    "comment": "--><img class=made src=x onerror=canary=1><!-- ]]><![CDATA[",
    "prototype": "__proto__",
    "constructor": "constructor",
    "dots": "a/../../b",
    "separators": "a/b c#d?e&f=1+2;g,h{i}",
    "percent": "%3Cscript%3E %2e%2e%2f %00 %",
    "ansi": "\x1b[31mred\x1b[0m \x1b[2J\x1b]8;;http://evil.invalid\x07click\x1b]8;;\x07 \x9b1m",
    "override": "\u202egnp.exe\u202c user\u2066\u2067x\u2069 \u200e\u200f\u061c",
    "unclosed": "\u202b\u202e\u2067\u2068 left open",
    "hebrew": "שלום (עולם) 1 <b class=made>2</b>",
    "nul": "a\x00b\x08\x7f\ufeff\u2028\u2029\u00ad\u200b",
    "replaced": "\ufffd\ufffd \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "marks": "Z" + "\u0301\u0489" * 60,
    "emoji": "👩‍👩‍👧‍👦" * 50,
    "lines": "\n" * 300 + "\r\n\t\v\f end",
    "unbroken": "x" * 400,
}


def completion_with(text: str) -> str:
    """A completion with a text in all its parts."""
    return f"{text}\n```python\n{text}\n```\n{text}"


LARGE = {
    "one_line": "y" * 1_000_000,
    "markup": "<img src=x onerror=canary=1>" * 40_000,
    "nuls": "\x00\x1b" * 60_000,
    "quote": "'" + "\\'" * 500_000,
    "fence": "```" + " " * 1_000_000 + "x",
}
RUN = "<img class=made src=x onerror=canary=1>\u202e-\"'%2F?#{a}+; --"
_STATUSES = list(FinalStatus)


def begin(books: Redis, run: str, output: str, large: Collection[str]) -> Ledger:
    """A running run with a problem for each text; the text names it and its data set, too.

    ``large`` names the texts of ``LARGE`` that it has.
    """
    problems = [_problem(text) for text in TEXTS.values()]
    problems += [_large_problem(name, text) for name, text in LARGE.items() if name in large]
    config = load_config(None, ["output.cases=failed"])
    facts = {"name": RUN, "model": TEXTS["image"], "started_at": 1_700_000_000.0, "output": output}
    return runs.begin(books, problems, run, config=config, **facts)


def judge_all(ledger: Ledger, large: Collection[str]) -> None:
    """Judge all samples."""
    for number, text in enumerate(TEXTS.values()):
        status = _STATUSES[number % len(_STATUSES)]
        _judge(ledger, SampleId(text, text), text, status)
    for name in large:
        _judge(ledger, SampleId("large", name), LARGE[name], FinalStatus.WRONG_ANSWER)


def _judge(ledger: Ledger, sample: SampleId, text: str, status: FinalStatus) -> None:
    made = {
        "completion": completion_with(text),
        "replica": text[:1000],
        "finish_reason": text[:1000],
        "finished_at": 1_700_000_010.0,
    }
    case = FailedCase(
        case_index=0, status=status, input=text, expected=text, actual=text + "!", stderr=text
    )
    result = CaseResult(
        case_index=0, status=status, actual=text + "!", stderr=text, compile_stderr=text
    )
    runs.judge(
        ledger,
        sample,
        status,
        made,
        SampleCases(recorded="failed", cases=(result,)),
        detail=text[:1000],
        first_failed_case=case,
        infra_failures=[text[:1000]],
        worker=text[:1000],
        judged_at=1_700_000_020.0,
    )


def _problem(text: str) -> Problem:
    extra = json.dumps({"tags": [text, "dp"]})
    tests = json.dumps({"inputs": [text], "outputs": [text]})
    return problem(text, text, prompt=text, difficulty=text, extra_info=extra, ground_truth=tests)


def _large_problem(name: str, text: str) -> Problem:
    return problem(name, "large", prompt=text)
