#!/usr/bin/env python3
"""Acceptance rows of a syncer, one function per row and named by its number (the list is vCluster's
behaviour, numbered 1 to 30), by theme in rows_*.py. Rows 1, 5, 6 and 9 are pure translation and live in
syncer_test; rows 25 and 26 belong to storage; what needs a container is in containers.sh. Row 30's figures
are printed by e2e/bench/load.py.
  rows.py [ROW ...]"""
import os
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rows_host  # noqa: E402
import rows_objects  # noqa: E402
import rows_pods  # noqa: E402
import rows_whole  # noqa: E402
from plain import Workplace  # noqa: E402
from steps import report  # noqa: E402

GROUPS = [rows_pods, rows_objects, rows_host, rows_whole]
VALUES = "sync: {toHost: {networkPolicies: {enabled: true}, ingresses: {enabled: true}}}\n"


def main(wanted):
    with Workplace() as place:
        host = place.host(3, "--gpus", "4")
        t = place.tenant(host, "t", VALUES)
        for row in [row for group in GROUPS for row in group.ROWS]:
            if wanted and row.__name__ not in wanted:
                continue
            try:
                row(t, host, place)
            except Exception as error:  # a broken row is a failed one; the others still run
                report.check(row.__name__, False, "".join(traceback.format_exception(error))[-1200:])
    return report.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
