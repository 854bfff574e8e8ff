"""How the page looks: light and dark, on a phone, on a screen and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --card: #f4f4f1; --ink: #1d2126; --soft: #5a626c; --line: #dcdcd6;
  --grid: #e6e6e1; --link: #0a5fa5; --note: #fdf3dc; --note-line: #b7791f;
  --good: #14694a; --wait: #7a5300; --bad: #a32020;
  --c0: #0069a8; --c1: #c0420b; --c2: #007a5a; --c3: #a03e86;
  --c4: #7a5c00; --c5: #4b5a9b; --c6: #8c2f39; --c7: #5b6470;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181c; --card: #1d2126; --ink: #e7e9ec; --soft: #a3acb7; --line: #363c44;
    --grid: #2a2f36; --link: #7cc0f5; --note: #2c2617; --note-line: #d4a13d;
    --good: #63d3a6; --wait: #e3b75a; --bad: #ff8f88;
    --c0: #5bb4ee; --c1: #f5955a; --c2: #4fd1a5; --c3: #e593cb;
    --c4: #e2c15a; --c5: #a5b1f0; --c6: #f28b95; --c7: #b4bcc8;
  }
}
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100% }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
body > * { max-width: 68rem; margin-inline: auto; padding-inline: clamp(1rem, 4vw, 2.5rem) }
body > header { padding-top: clamp(1.75rem, 5vw, 3.5rem) }
body > footer { padding-block: 1rem 3rem; color: var(--soft); font-size: .875rem }
h1, h2, h3, h4 { line-height: 1.25; margin: 0; text-wrap: balance; overflow-wrap: anywhere }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.2rem); letter-spacing: -.015em; font-weight: 680 }
h2 { font-size: clamp(1.35rem, 3.5vw, 1.7rem); letter-spacing: -.01em; font-weight: 660 }
h3 { font-size: 1.125rem; font-weight: 640; margin-bottom: .5rem }
h4 { font-size: .9375rem; font-weight: 600; margin: 0 0 .25rem }
p { margin: .5rem 0; max-width: 44rem; overflow-wrap: break-word }
a { color: var(--link); text-underline-offset: .18em }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
.lead { font-size: 1.0625rem }
.soft { color: var(--soft) }
nav ol { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 1rem 0 0;
  padding: 0 }
nav li { overflow-wrap: anywhere }
article { border-top: 1px solid var(--line); margin-top: clamp(2rem, 5vw, 3.25rem);
  padding-top: clamp(1.5rem, 4vw, 2.5rem) }
article > section { margin-top: clamp(1.75rem, 4vw, 2.5rem) }
.title { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem .875rem }
.state { font-size: .8125rem; font-weight: 600; white-space: nowrap }
.state::before { content: ""; display: inline-block; width: .6em; height: .6em; margin-right: .45em;
  border: .15em solid currentColor; border-radius: 50% }
.state.good { color: var(--good) } .state.good::before { background: currentColor }
.state.wait { color: var(--wait) }
.state.bad { color: var(--bad) } .state.bad::before { border-radius: 0; rotate: 45deg }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1px;
  margin: 1.25rem 0 0; background: var(--line); border: 1px solid var(--line);
  border-radius: .5rem; overflow: hidden }
.tiles > div { background: var(--page); padding: .75rem 1rem; display: flex;
  flex-direction: column; justify-content: space-between }
.tiles dt { color: var(--soft); font-size: .8125rem; line-height: 1.35 }
.tiles dd { margin: .125rem 0 0; font-size: 1.375rem; font-weight: 620; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr));
  gap: .75rem 1.25rem; margin: .75rem 0 }
.facts dt { color: var(--soft); line-height: 1.4 }
.facts dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums }
.note { background: var(--note); border-left: 3px solid var(--note-line); padding: .625rem .875rem;
  border-radius: 0 .375rem .375rem 0; margin: 1rem 0; overflow-wrap: anywhere }
.pair { display: grid; gap: 1.75rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)) }
.pair > * { min-width: 0 }
figure { margin: 1.25rem 0 0; min-width: 0 }
.pair figure { margin-top: .5rem }
.panel { max-width: 32rem }
.panels { display: grid; gap: 1rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)) }
figcaption { color: var(--soft); font-size: .9375rem; line-height: 1.5; margin-top: .5rem;
  max-width: 44rem }
.panels + .legend + figcaption { max-width: 48rem }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-size: 13px; fill: var(--soft); font-variant-numeric: tabular-nums }
svg .t { fill: var(--ink) }
.grid { stroke: var(--grid) } .tick, .axis { stroke: var(--soft) }
.l { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: butt }
.m { stroke: var(--page); stroke-width: 1 } .h { fill: var(--page); stroke-width: 1.6 }
.band { opacity: .16 }
.l.quiet { stroke: var(--soft); stroke-width: 1.4 }
.l.s0 { stroke: var(--c0) } .l.s1 { stroke: var(--c1) } .l.s2 { stroke: var(--c2) }
.l.s3 { stroke: var(--c3) } .l.s4 { stroke: var(--c4) } .l.s5 { stroke: var(--c5) }
.l.s6 { stroke: var(--c6) } .l.s7 { stroke: var(--c7) }
.h.s0 { stroke: var(--c0) } .h.s1 { stroke: var(--c1) } .h.s2 { stroke: var(--c2) }
.m.s0, .band.s0 { fill: var(--c0) } .m.s1, .band.s1 { fill: var(--c1) }
.m.s2, .band.s2 { fill: var(--c2) } .m.s3, .band.s3 { fill: var(--c3) }
.m.s4, .band.s4 { fill: var(--c4) } .m.s5, .band.s5 { fill: var(--c5) }
.m.s6, .band.s6 { fill: var(--c6) } .m.s7, .band.s7 { fill: var(--c7) }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .125rem 1.125rem; padding: 0;
  margin: .375rem 0 0; font-size: .875rem }
.legend li { display: flex; align-items: center; gap: .45rem; overflow-wrap: anywhere }
.legend svg { width: 34px; height: 14px; flex: none }
details { margin-top: .625rem }
summary { cursor: pointer; color: var(--link); font-size: .9375rem; width: fit-content;
  padding-block: .2rem }
.scroll { overflow-x: auto; margin-top: .75rem; max-width: 100% }
table { border-collapse: collapse; font-size: .9375rem; line-height: 1.4 }
caption { text-align: left; color: var(--soft); font-size: .875rem; padding-bottom: .375rem }
caption span { position: sticky; left: 0; display: inline-block;
  max-width: min(44rem, 100vw - 2rem) }
th, td { text-align: left; vertical-align: baseline; padding: .35rem .9rem .35rem 0;
  border-bottom: 1px solid var(--line); font-weight: 400 }
th + td, th + th, td + td { padding-left: .9rem }
thead th { font-weight: 600; border-bottom-color: var(--soft); vertical-align: bottom }
td { white-space: nowrap } td.w { white-space: normal; min-width: 12rem }
td.n { text-align: right; font-variant-numeric: tabular-nums }
thead th.n { text-align: right }
tbody th { min-width: 5.5rem } tbody th:has(small) { min-width: 9.5rem }
tbody th small { display: block; color: var(--soft); font-size: .8125rem }
code, pre { font-size: .875em;
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace }
.kicker { font-size: .9375rem; letter-spacing: 0; font-weight: 600; display: inline }
.kicker + p { display: inline; margin-left: .75rem; font-size: .9375rem }
.one article:first-child { border-top: 0; margin-top: 0 }
.one h2 { font-size: clamp(1.6rem, 4.5vw, 2.2rem); letter-spacing: -.015em; font-weight: 680 }
.tall { max-height: 22rem; overflow-y: auto }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  margin: .75rem 0; padding: .75rem 1rem; overflow-x: auto; line-height: 1.5; user-select: all }
@media (max-width: 40rem) { svg text { font-size: 15px } }
@media print {
  :root { --page: #fff; --card: #f6f6f4; --ink: #000; --soft: #444; --line: #bbb; --grid: #ddd;
    --note: #fff; --c0: #0069a8; --c1: #c0420b; --c2: #007a5a; --c3: #a03e86; --c4: #7a5c00;
    --c5: #4b5a9b; --c6: #8c2f39; --c7: #5b6470; --good: #14694a; --wait: #7a5300; --bad: #a32020 }
  body { font-size: 10pt }
  nav, summary { display: none }
  details::details-content { content-visibility: visible; block-size: auto }
  figure, tr, .tiles { break-inside: avoid }
  h2, h3, h4 { break-after: avoid }
  .scroll { overflow: visible } .tall { max-height: none }
  pre { white-space: pre-wrap; overflow-wrap: anywhere }
}
"""
