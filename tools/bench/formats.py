"""The report of several number formats of a layer in one table: times, and ratios to f32 and to other libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convreg.errors import printable
from convreg.presentation import aligned, markdown_table

from .report import OURS, Report, Row, Summary, known, measured, milliseconds, preamble, summarize


def shown(report: Report, *, as_markdown: bool) -> str:
    """Return the report as text, or as Markdown: for each direction and layout a table of calls and its summary."""
    parts = ["\n".join(f"* {line}" if as_markdown else line for line in preamble(report))]
    for title, rows in _tables(report):
        calls, summary, remarks = _calls(report, rows), _summary(report, rows), _remarks(rows)
        if as_markdown:
            parts += [f"### {title[0].upper()}{title[1:]}", "\n".join(markdown_table(calls)),
                      "\n".join(markdown_table(summary)), *remarks]
        else:
            parts += ["\n".join([title, *aligned(calls)]), "\n".join([*aligned(summary), *remarks])]
    return "\n\n".join(parts)


def _tables(report: Report) -> Iterator[tuple[str, list[Row]]]:
    """Yield a title and the rows of each direction and layout, the formats of a layer one after the other."""
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        tables.setdefault((row.direction, row.layout), []).append(row)
    for (direction, layout), rows in tables.items():
        yield f"{'forward' if direction == 'forward' else f'{direction} gradient'}, {layout}", rows


def _format(row: Row) -> str:
    return row.dtype if row.dtype == row.result else f"{row.dtype}, {row.result} results"


def _calls(report: Report, rows: Sequence[Row]) -> list[list[str]]:
    lines = [["shape", "format", "ms", "algorithm", *(f"{name} ratio" for name in report.others)]]
    for row in rows:
        lines.append([row.name, _format(row), measured(row, OURS, row.seconds, milliseconds), row.algorithm or "-",
                      *(measured(row, peer, row.ratio, "{:.2f}".format) for peer in report.others)])
    return lines


def _summary(report: Report, rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each format: geometric means, and for each library the worst ratio with its layer."""
    lines = [["format", "layers", "ms, mean",
              *(head for name in report.others for head in (f"{name} ratio, mean", "worst", "layer"))]]
    formats: dict[str, list[Row]] = {}
    for row in rows:
        formats.setdefault(_format(row), []).append(row)
    for name, members in formats.items():
        found = summarize(report, members)
        right = sum(row.seconds(OURS) is not None for row in members)
        lines.append([name, str(right), known(found.seconds.get(OURS), milliseconds),
                      *(cell for peer in report.others for cell in _ratios(found, peer))])
    return lines


def _remarks(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each wrong result, and one for each reason why a library does not compute some calls."""
    lines = [f"{row.name}, {_format(row)}: {peer} is wrong: {why}" for row in rows for peer, why in row.wrong.items()]
    reasons: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for peer, why in row.unsupported.items():
            reasons.setdefault((peer, why), []).append(row)
    for (peer, why), members in reasons.items():
        formats = dict.fromkeys(row.dtype for row in members)
        whole = len(members) == sum(row.dtype in formats for row in rows)
        layers = "" if whole else f"{', '.join(dict.fromkeys(row.name for row in members))} in "
        lines.append(f"{peer} does not compute {layers}{', '.join(formats)}: {why}")
    return [*map(printable, lines)]


def _ratios(summary: Summary, peer: str) -> list[str]:
    if peer not in summary.ratio:
        return ["-", "-", "-"]
    worst, layer = summary.worst[peer]
    return [f"{summary.ratio[peer]:.2f}", f"{worst:.2f}", layer]
