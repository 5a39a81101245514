# SPDX-License-Identifier: Apache-2.0
"""What became of each node of a model: the report of an executable, as text and as a table of notebooks."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """A node of the plan. `verdict` is native, decomposed or fallback; `reason` says why it is not native."""

    name: str
    op: str
    device: str
    verdict: str
    reason: str
    note: str


class Report:
    """What became of each node, which steps run, and how much memory they take.

    `data` has all of it, as `tenon_executable_report()` in tenon.h describes it.
    """

    def __init__(self, text: str) -> None:
        self.data: dict[str, Any] = json.loads(text)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the plan, in the order of the graph."""
        keys = ("name", "op", "device", "verdict", "reason", "note")
        return [Node(*(str(n.get(k, "")) for k in keys)) for n in self.data["nodes"]]

    @property
    def remarks(self) -> list[str]:
        """What the plan as a whole had to choose or do without."""
        return [str(r) for r in self.data.get("remarks", [])]

    @property
    def verdicts(self) -> dict[str, int]:
        """The number of nodes with each verdict."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.verdict] = counts.get(node.verdict, 0) + 1
        return counts

    def _summary(self) -> str:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.verdicts.items()) or "no nodes"
        return f"{len(self.nodes)} nodes ({counts}), {len(self.data['steps'])} steps"

    def _rows(self) -> list[tuple[str, ...]]:
        return [(n.name, n.op, n.device, n.verdict, n.reason or n.note) for n in self.nodes]

    _HEAD = ("node", "op", "device", "verdict", "why")

    def __str__(self) -> str:
        rows = [self._HEAD, *self._rows()]
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        lines = [self._summary()]
        lines += ["  ".join([*(c.ljust(w) for c, w in zip(row, widths)), row[4]]).rstrip() for row in rows]
        lines += [f"remark: {r}" for r in self.remarks]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<tenon.Report: {self._summary()}>"

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        remarks = "".join(f"<p>{html.escape(r)}</p>" for r in self.remarks)
        return (
            f"<p>{html.escape(self._summary())}</p>"
            f"<table><thead>{row(self._HEAD, 'th')}</thead>"
            f"<tbody>{''.join(row(r, 'td') for r in self._rows())}</tbody></table>{remarks}"
        )
