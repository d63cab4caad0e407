# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The style sheet of the page. Nothing is loaded: it names no address and no font of others."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --back: #ffffff; --card: #f6f7f9; --text: #1b1f24; --soft: #57606a; --edge: #d3d9e0;
  --free: #e9edf1; --used: #2f6fbf; --reserved: #98a2ae; --rest: #c2cad3; --good: #1a7f47; --bad: #c4252b; --warn: #8a5a00;
  --good-back: #e3f5ea; --bad-back: #fdeaea; --warn-back: #fdf3dc; --limit: #1b1f24;
  --c0: #3b78c4; --c1: #d9822b; --c2: #3f9a5c; --c3: #8a63c0; --c4: #2c9aa6; --c5: #c2598b; --c6: #97871d; --c7: #6577a8;
  --s0: #3b78c4; --s1: #2c9aa6; --s2: #3f9a5c; --s3: #8a63c0; --waiting: #b9c2cc; --failed: #d0353b; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #14181d; --card: #1c2229; --text: #e4e8ed; --soft: #9ba6b2; --edge: #343c46;
  --free: #2b323a; --used: #5a96e0; --reserved: #6b7682; --rest: #4c5661; --good: #5cc98a; --bad: #ff7b7f; --warn: #e5b75a;
  --good-back: #17301f; --bad-back: #3a1c1e; --warn-back: #33290f; --limit: #ffffff;
  --c0: #5a96e0; --c1: #e59a4f; --c2: #5cb57a; --c3: #a583d6; --c4: #4db5c0; --c5: #d979a6; --c6: #b8a63d; --c7: #8394c4;
  --s0: #5a96e0; --s1: #4db5c0; --s2: #5cb57a; --s3: #a583d6; --waiting: #56616d; --failed: #f2575c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header, main, footer { max-width: 72rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.25rem 0 .75rem; padding-bottom: .3rem; border-bottom: 2px solid var(--edge); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
h4 { font-size: 1rem; margin: 0; }
h1, h2, h3, h4, p, li, dd { overflow-wrap: anywhere; }
th, td { overflow-wrap: break-word; }
.lane th, .scrolls td { overflow-wrap: anywhere; }
p { margin: .4rem 0; }
a { color: var(--used); }
a:focus-visible, summary:focus-visible, .scrolls:focus-visible { outline: 3px solid var(--used); outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--card); padding: .4rem .8rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; margin: .75rem 0 0; }
.facts, footer, .note { color: var(--soft); font-size: .9rem; }
.note { border-left: 3px solid var(--edge); padding-left: .75rem; }
p.good, p.bad { padding: .5rem .8rem; border-radius: .4rem; }
p.good { background: var(--good-back); color: var(--good); }
p.bad { background: var(--bad-back); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tiles div { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .6rem .8rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 600; }
.tiles dd span { display: block; font-size: .8rem; font-weight: 400; color: var(--soft); }
.badge { display: inline-block; border-radius: .7rem; padding: 0 .55rem; font-size: .8rem; font-weight: 600; white-space: normal; }
.badge.good { color: var(--good); background: var(--good-back); }
.badge.bad { color: var(--bad); background: var(--bad-back); }
.badge.warn { color: var(--warn); background: var(--warn-back); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--soft); }
.legend > span { display: inline-flex; align-items: center; }
.key { display: inline-block; width: .9rem; height: .9rem; margin-right: .4rem; border-radius: .15rem; border: 1px solid var(--edge); flex: none; }
.key.line { height: 0; width: 1.4rem; border: 0; border-top: 3px solid; border-radius: 0; align-self: center; }
article h3 { margin-top: 0; }
article.host { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .75rem .9rem; margin: 0 0 .75rem; break-inside: avoid; }
.problems { margin: .3rem 0 .5rem; padding-left: 1.2rem; color: var(--bad); font-size: .9rem; }
.row { display: grid; grid-template-columns: 4.5rem minmax(0, 1fr) minmax(0, 25rem); gap: .15rem .75rem; align-items: center; margin: .3rem 0; }
.resource { font-size: .85rem; color: var(--soft); }
.figures { font-size: .85rem; font-variant-numeric: tabular-nums; }
.over { color: var(--bad); }
svg.bar { display: block; width: 100%; height: 1.15rem; border-radius: .2rem; }
td svg.bar { min-width: 7rem; height: .8rem; margin: .2rem 0; }
svg rect { stroke: var(--card); stroke-width: 1px; vector-effect: non-scaling-stroke; }
svg rect:hover { opacity: .75; }
rect.free { fill: var(--free); stroke: none; } rect.limit { fill: var(--limit); stroke: none; }
rect.used { fill: var(--used); } rect.reserved { fill: var(--reserved); } rect.rest { fill: var(--rest); }
rect.c0 { fill: var(--c0); } rect.c1 { fill: var(--c1); } rect.c2 { fill: var(--c2); } rect.c3 { fill: var(--c3); }
rect.c4 { fill: var(--c4); } rect.c5 { fill: var(--c5); } rect.c6 { fill: var(--c6); } rect.c7 { fill: var(--c7); }
rect.moving { fill-opacity: .45; }
rect.s0 { fill: var(--s0); } rect.s1 { fill: var(--s1); } rect.s2 { fill: var(--s2); } rect.s3 { fill: var(--s3); }
rect.waiting { fill: var(--waiting); } rect.failed { fill: var(--failed); }
.key.free { background: var(--free); } .key.reserved { background: var(--reserved); } .key.rest { background: var(--rest); }
.key.c0 { background: var(--c0); } .key.moving { opacity: .45; } .key.waiting { background: var(--waiting); } .key.failed { background: var(--failed); }
.key.s0 { background: var(--s0); } .key.s1 { background: var(--s1); } .key.s2 { background: var(--s2); } .key.s3 { background: var(--s3); }
.key.capacity { border-color: var(--soft); border-top-style: dashed; } .key.inuse { border-color: var(--used); }
.scrolls { overflow-x: auto; margin: .3rem 0 .75rem; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--edge); vertical-align: top; font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 600; min-width: 6rem; max-width: 24rem; }
.number { text-align: right; }
td.number { white-space: nowrap; }
summary { cursor: pointer; color: var(--used); font-size: .9rem; width: fit-content; }
.lane caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.lane table { table-layout: fixed; min-width: 34rem; }
.lane td, .lane tbody th { vertical-align: middle; padding-top: .15rem; padding-bottom: .15rem; }
.lane td svg.bar { height: 1.05rem; margin: 0; }
.lane th:nth-child(1) { width: 22%; } .lane th:nth-child(3) { width: 9.5rem; } .lane th:nth-child(4) { width: 5.5rem; }
.axis { position: relative; height: 1rem; font-weight: 400; font-size: .75rem; }
.axis span { position: absolute; border-left: 1px solid var(--edge); padding-left: .2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .75rem; }
.chart { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .5rem; break-inside: avoid; }
.chart svg { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 12px; } .chart text.title { fill: var(--text); font-weight: 600; }
.grid { stroke: var(--edge); stroke-width: 1; }
.line.capacity { fill: none; stroke: var(--soft); stroke-width: 2; stroke-dasharray: 5 4; }
.line.inuse { fill: none; stroke: var(--used); stroke-width: 2.5; }
.area { fill: var(--used); fill-opacity: .12; } .dot { fill: var(--used); }
footer { padding-top: 1rem; padding-bottom: 2rem; margin-top: 2rem; border-top: 1px solid var(--edge); }
@media (max-width: 44rem) { .row { grid-template-columns: 1fr; } .figures { margin-bottom: .35rem; } }
@media print {
  :root { color-scheme: light; --back: #ffffff; --card: #ffffff; --text: #000000; --soft: #444444; --edge: #999999; }
  body { font-size: 10pt; } header, main, footer { max-width: none; padding-left: 0; padding-right: 0; }
  nav, .skip { display: none; } .scrolls { overflow: visible; } h2, h3, h4, summary { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
