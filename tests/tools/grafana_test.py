#!/usr/bin/env python3
"""Tests of examples/grafana/moecomm.json: its panels show the metrics that moe_top prints, by their labels."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARD = json.loads((ROOT / "examples/grafana/moecomm.json").read_text())
REPORT = (ROOT / "src/tools/top_report.cc").read_text()
LABELS = {"job_id", "rank", "host", "awaited"}


def queries():
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


class GrafanaTest(unittest.TestCase):
    def test_every_metric_that_is_shown_exists(self):
        shown = set(re.findall(r"moecomm_\w+", " ".join(queries())))
        self.assertGreater(len(shown), 5)
        self.assertLessEqual(shown, set(re.findall(r'begin\("(moecomm_\w+)"', REPORT)))

    def test_labels_are_those_of_the_metrics(self):
        for label in LABELS:
            self.assertRegex(REPORT, rf'{label}=\\"')
        for query in queries():
            named = re.findall(r"(\w+)=~", query) + re.findall(r"\w+", " ".join(re.findall(r"(?:by|on) \(([^)]*)\)", query)))
            self.assertLessEqual(set(named), LABELS, query)
        for panel in BOARD["panels"]:
            for target in panel["targets"]:
                self.assertLessEqual(set(re.findall(r"{{(\w+)}}", target["legendFormat"])), LABELS, panel["title"])

    def test_variables_are_declared(self):
        declared = {variable["name"] for variable in BOARD["templating"]["list"]}
        text = json.dumps(BOARD).replace("$__rate_interval", "").replace("$__all", "")
        self.assertEqual(set(re.findall(r"\$\{?(\w+)", text)), declared)

    def test_panels_do_not_overlap(self):
        taken = set()
        for panel in BOARD["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            self.assertTrue(panel["description"], panel["title"])
            taken |= cells
        self.assertEqual(len({panel["id"] for panel in BOARD["panels"]}), len(BOARD["panels"]))


if __name__ == "__main__":
    unittest.main()
