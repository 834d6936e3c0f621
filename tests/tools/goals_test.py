#!/usr/bin/env python3
"""scripts/goals.py finds the right case for each goal, and says which goals are met, missed, wrong and not measured."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import goals  # noqa: E402


def case(us, **given):
    summary = {"min": us - 1, "median": us, "p99": us + 9}
    return {"mode": "ht", "layout": "flat", "format": "bf16", "cast": "none", "routing": "uniform", "tokens": 4096,
            "sms": 16, "graph": True, "ceiling": True, "wrong_payloads": 0, "wrong_metadata": 0,
            "wrong_combines": 0, "dispatch_us": summary, "combine_us": summary,
            "pair_us": summary, "step_us": summary, "dispatch_of_ceiling": 0.975, "combine_of_ceiling": 0.5, "pair_of_ceiling": 0.7, "step_of_ceiling": 0.6, **given}


def row(cases, name):
    lines = [line for line in goals.table(cases).splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, f"{name}: {lines}"
    return [cell.strip() for cell in lines[0].strip("|").split("|")[1:]]


class Goals(unittest.TestCase):
    def test_shows_times_beside_their_goal_and_ceiling(self):
        self.assertEqual(row([case(489)], "HT bf16 4096, dispatch, 16 SMs"),
                         ["<= 490", "488.0 / 489.0 / 498.0", "98 %", "met"])
        self.assertEqual(row([case(500)], "HT bf16 4096, combine, 16 SMs"),
                         ["<= 492", "499.0 / 500.0 / 509.0", "50 %", "**missed**"])

    def test_shows_a_whole_step_beside_its_ceiling(self):
        step = {"min": 940.25, "median": 946, "p99": 960}
        self.assertEqual(row([case(489, sms=0, step_us=step)], "HT step, FLAT, own choice of SMs, 4096"),
                         ["<= 955", "940.2 / 946.0 / 960.0", "60 %", "met"])

    def test_takes_no_other_case(self):
        others = [case(1, sms=8), case(1, tokens=8192), case(1, format="fp8"), case(1, routing="zipf"), case(1, mode="ll"),
                  case(1, layout="expert-major"), case(1, graph=False), case(1, ceiling=False)]
        self.assertEqual(row(others, "HT bf16 4096, dispatch, 16 SMs"), ["<= 490", "-", "-", "-"])

    def test_takes_the_last_of_the_same_cases(self):
        self.assertIn("480.0", row([case(600), case(480)], "HT bf16 4096, dispatch, 16 SMs")[1])

    def test_knows_casts_layouts_and_own_choices(self):
        cases = [case(30, mode="ll", layout="rank-major", cast="fp8", tokens=128, sms=0),
                 case(41, mode="ll", layout="expert-major-padded", tokens=128, sms=0), case(950, sms=0),
                 case(1079, layout="expert-major", sms=24), case(250, format="fp8")]
        for name in ("LL pair, RANK_MAJOR, fp8 cast, 128", "LL pair, EXPERT_MAJOR_PADDED, bf16, 128",
                     "HT bf16 pair, FLAT, own choice of SMs, 4096", "HT bf16 pair, EXPERT_MAJOR, 24 SMs, 4096",
                     "HT fp8 rows 4096, dispatch, 16 SMs"):
            self.assertEqual(row(cases, name)[3], "met", name)

    def test_shows_skewed_cases_beside_their_ceiling(self):
        cases = [case(900, routing="zipf"), case(900, routing="one-rank", pair_of_ceiling=0.91)]
        self.assertEqual(row(cases, "HT pair, zipf")[2:], ["70 %", "**missed**"])
        self.assertEqual(row(cases, "HT pair, one-rank")[2:], ["91 %", "met"])

    def test_judges_auto_at_its_worst_token_count(self):
        cases = [case({"auto": 10, "ht": 30, "ll": 10}[mode], mode=mode, tokens=tokens, sms=0, ceiling=False)
                 for mode in ("auto", "ht", "ll") for tokens in goals.SWEPT]
        name = "step of AUTO by the better mode, 1 to 8192"
        self.assertEqual(row(cases, name)[3], "met")
        cases.append(case(12, mode="auto", tokens=64, sms=0, ceiling=False))
        self.assertEqual(row(cases, name)[1:], ["1.20, at 64 tokens", "-", "**missed**"])
        self.assertEqual(row(cases[1:], name)[1], "13 of 14 token counts measured")

    def test_ends_with_1_if_anything_was_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for i, wrong in enumerate((0, 3)):
                files.append(os.path.join(folder, f"{i}.json"))
                with open(files[-1], "w", encoding="utf-8") as file:
                    json.dump([case(480), case(480, wrong_combines=wrong)], file)
            for some, status, sentence in ((files[:1], 0, "2 cases, 0 wrong"), (files, 1, "4 cases, 3 wrong")):
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    self.assertEqual(goals.main(some), status)
                self.assertIn(sentence, said.getvalue())


if __name__ == "__main__":
    unittest.main()
