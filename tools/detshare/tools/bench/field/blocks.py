# SPDX-License-Identifier: Apache-2.0
"""What the field's pages are made of: self-contained HTML without a script, light and dark, for a phone's width too."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["columns", "document", "drawn", "origin", "text"]

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2430;--dim:#5b6675;--line:#d8dee6;--own:#0b63ce;--other:#9a5b00}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6ebf2;--dim:#9aa7b8;--line:#2c3644;--own:#6cb2ff;--other:#f0b354}}
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--bg);color:var(--fg)}
body{font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}p,li{color:var(--dim)}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}
figure{margin:1rem 0}figcaption{color:var(--dim);font-size:.9rem}a{color:var(--own)}
svg,img{width:100%;min-width:34rem;max-width:52rem;height:auto}svg text{fill:var(--fg);font:11px system-ui,sans-serif}
.own{fill:var(--own)}.other{fill:var(--other)}.rule{stroke:var(--line)}.goal{stroke:var(--own);stroke-dasharray:3 3}
summary{cursor:pointer}
"""


def text(value: object) -> str:
    """For HTML."""
    return html.escape(str(value))


def columns(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """A table that scrolls in its own box."""
    top = "".join(f'<th scope="col">{text(each)}</th>' for each in head)
    lines = "".join("<tr>" + "".join(f"<td>{text(each)}</td>" for each in row) + "</tr>" for row in body)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def drawn(svg: str, about: str, source: str, command: str) -> str:
    """A picture with where it comes from."""
    told = f"{text(about)} {origin(source, command)}"
    return f'<figure><div class="wide">{svg}</div><figcaption>{told}</figcaption></figure>'


def origin(source: str, command: str) -> str:
    """Where a figure comes from."""
    return f'Raw data: <a href="{text(source)}">{text(source)}</a>. Command: <code>{text(command)}</code>'


def document(title: str, body: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!doctype html>\n<!--\nSPDX-License-Identifier: Apache-2.0\n-->\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
