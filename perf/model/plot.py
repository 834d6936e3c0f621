#!/usr/bin/env python3
"""Draws docs/images/scaling.svg from what `moe_model --json FILE` writes.

Usage: plot.py MODEL.json IMAGE.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 250, 55, 40, 75  # of a panel, and between panels
BLUE, RED, GREEN, GRAY = "#1f5fa8", "#b5371f", "#2f7d3a", "#777777"


class Panel:
    """Axes with a logarithmic scale, and the curves between them."""

    def __init__(self, index, title, x, x_ticks, y_ticks):
        self.left, self.items = LEFT + index * (WIDTH + GAP), []
        self.x_ticks, self.y_ticks = x_ticks, y_ticks
        self.text(self.left, TOP - 14, title, "start", 13)
        self.text(self.left + WIDTH / 2, TOP + HEIGHT + 36, x)
        self.axes()

    def at(self, x, y):
        def share(value, ticks):
            return math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])
        return self.left + WIDTH * share(x, self.x_ticks), TOP + HEIGHT * (1 - share(y, self.y_ticks))

    def text(self, x, y, what, anchor="middle", size=11, color="#222222"):
        self.items.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="{color}">{what}</text>')

    def line(self, points, color, dashed=False, width=1.8):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        self.items.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"{dash}/>')

    def dot(self, x, y, color, filled=True):
        x, y = self.at(x, y)
        fill = color if filled else "#ffffff"
        self.items.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}" stroke="{color}"/>')

    def axes(self):
        for tick in self.x_ticks:
            x, y = self.at(tick, self.y_ticks[0])
            self.line([(tick, self.y_ticks[0]), (tick, self.y_ticks[-1])], "#dddddd", width=0.7)
            self.text(x, y + 16, tick)
        for tick in self.y_ticks:
            x, y = self.at(self.x_ticks[0], tick)
            self.line([(self.x_ticks[0], tick), (self.x_ticks[-1], tick)], "#dddddd", width=0.7)
            self.text(x - 5, y + 4, tick, "end")

    def legend(self, entries, row=0):
        for i, (what, color) in enumerate(entries):
            self.text(self.left + 8, TOP + 16 + 15 * (row + i), what, "start", 11, color)


def plan_panel(index, title, model, series, y_ticks):
    """Times of cases over ranks: dispatch as a line, combine dashed."""
    panel = Panel(index, title, "ranks", [16, 32, 64, 128, 256, 512, 1024, 2048], y_ticks)
    for machine, key, _, color in series:
        for operation in ("dispatch", "combine"):
            cases = [case for case in model["cases"] if case["machine"] == machine]
            panel.line([(case["ranks"], case[key][operation]["us"]) for case in cases], color, operation == "combine")
    panel.legend([(name, color) for _, _, name, color in series] + [("combine: dashed", GRAY)])
    return panel


def published_panel(index, model):
    panel = Panel(index, "Model over published, us", "published, us", [10, 100, 1000, 10000], [10, 100, 1000, 10000])
    for factor, dashed in ((1, False), (1.1, True), (1 / 1.1, True)):
        panel.line([(10 * max(1, 1 / factor), 10 * max(1, factor)),
                    (10000 / max(1, factor), 10000 * min(1, factor))], GRAY, dashed, 0.9)
    for case in model["published"]:
        color = GREEN if "moecomm" in case["system"] else BLUE if case["mode"] == "LL" else RED
        for operation in ("dispatch", "combine"):
            if operation in case:
                both = case[operation]
                panel.dot(both["published_us"], both["model_us"], color, operation == "dispatch")
    panel.legend([("others, LL", BLUE), ("others, HT", RED), ("moecomm, pairs", GREEN), ("combine: hollow", GRAY),
                  ("dashed: 10 % off", GRAY)])
    return panel


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        model = json.load(file)
    panels = [
        plan_panel(0, "LL, 128 tokens, us", model,
                   [("nodes of 8", "ll", "nodes of 8, direct", BLUE),
                    ("nodes of 8", "ll_once_per_domain", "nodes of 8, once per node", RED),
                    ("fabrics of 72", "ll", "fabrics of 72, direct", GREEN)], [10, 20, 50, 100, 200, 500, 1000]),
        plan_panel(1, "HT, 4096 tokens, us", model,
                   [("nodes of 8", "ht", "nodes of 8", BLUE),
                    ("fabrics of 72", "ht", "fabrics of 72", GREEN)], [200, 500, 1000, 2000, 5000, 10000, 20000]),
        published_panel(2, model)]
    width, height = LEFT + 3 * (WIDTH + GAP) - GAP + 25, TOP + HEIGHT + 50
    with open(sys.argv[2], "w", encoding="ascii") as image:
        image.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                    f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
                    f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n')
        for panel in panels:
            image.write("\n".join(panel.items) + "\n")
        image.write("</svg>\n")


if __name__ == "__main__":
    main()
