"""A plugin of pytest: writes `pass TEST` or `fail TEST` for each test to the file $LINES."""

import os


def pytest_runtest_logreport(report):
    if report.failed or (report.passed and report.when == "call"):
        word = "fail" if report.failed else "pass"
        with open(os.environ["LINES"], "a", encoding="utf-8") as lines:
            lines.write(f"{word} {report.nodeid}\n")
