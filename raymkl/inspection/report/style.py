"""Colours and layout of the report, for light and dark screens and for paper.

Series colours are those of Okabe and Ito (brighter on dark ground). Heat maps use one hue whose opacity is
the value, or two (blue above zero, orange below), which colour-blind readers tell apart and which work on
either ground. `svg` puts these colours in place of those that matplotlib draws with.
"""

CSS = """
:root {
  color-scheme: light dark;
  --ground: #fbfbfa; --card: #ffffff; --ink: #1c2127; --soft: #5a6572; --line: #d9dee4; --grid: #e8ebef;
  --s0: #0072b2; --s1: #c24e00; --s2: #00805e; --s3: #b2568c; --s4: #2f8fc4; --s5: #a87400; --s6: #6b7480;
    --s7: #1c2127;
  --heat: #00508c; --on-heat: #ffffff; --below: #c24e00; --good: #00805e; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171b; --card: #1b1f25; --ink: #e6e9ed; --soft: #a2acb8; --line: #343b45; --grid: #2a3038;
    --s0: #56b4e9; --s1: #ff9551; --s2: #2fc9a0; --s3: #e79ac6; --s4: #8fd0ff; --s5: #f0bb3c; --s6: #98a3b0;
      --s7: #e6e9ed;
    --heat: #7cc4f2; --on-heat: #0c141b; --below: #ff9551; --good: #2fc9a0; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 0 0 6px; }
h3 { font-size: 15px; margin: 18px 0 6px; }
p { margin: 4px 0 10px; max-width: 78ch; }
.soft, figcaption { color: var(--soft); }
nav { margin: 14px 0 20px; display: flex; flex-wrap: wrap; gap: 4px 16px; }
nav a, a { color: var(--s0); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px;
  margin: 0 0 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 12px
  0; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px; min-width: 0; }
.tile b { display: block; font-size: 19px; line-height: 1.3; overflow-wrap: anywhere; font-variant-numeric:
  tabular-nums; }
.tile.wide { grid-column: span 2; } .tile.wide b { font-size: 16px; line-height: 1.54; }
.tile span { color: var(--soft); font-size: 13px; }
.good { color: var(--good); } .bad { color: var(--bad); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 8px 24px;
  align-items: start; }
figure { margin: 10px 0 4px; }
figcaption { font-size: 13px; margin-bottom: 6px; max-width: 78ch; }
svg { display: block; width: 100%; height: auto; color: var(--ink); font-family: system-ui, -apple-system,
  "Segoe UI", Roboto, Arial, sans-serif; font-variant-numeric: tabular-nums; }
svg path { stroke-linejoin: round; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin: 6px 0 8px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 18px 4px 0; border-bottom: 1px solid var(--line); vertical-align:
  top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td code, li code { overflow-wrap: anywhere; }
code { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--s0); }
@media print { body { background: none; } section { break-inside: avoid; border: none; padding: 0; } nav {
  display: none; } }
@media (max-width: 600px) { main { padding: 16px 8px 40px; } section { padding: 14px 10px; } }
"""
