#!/usr/bin/env python3
"""baton-trace: where the time of a job went, from the files that its ranks have recorded.

    BATON_TRACE=/tmp/trace mpirun -np 4 ./program
    baton-trace /tmp/trace                      a report on who waited for whom
    baton-trace /tmp/trace -o job.json          a timeline, for ui.perfetto.dev
    baton-trace /tmp/trace -o both.json --with simulated.json      beside another one
    baton-trace /tmp/trace --html report.html   the report as a page with a picture
"""
import argparse
import sys
from typing import List, Optional


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="baton-trace", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog="docs/observe.md explains what is printed.")
    parser.add_argument("folder", metavar="FOLDER", help="where the files *.trace are")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="write a timeline for Perfetto and chrome://tracing, in JSON")
    parser.add_argument("--simulate", metavar="MODE",
                        help="add to the timeline what a mode (majority, quorum:3, ...) would "
                        "have done with the same computation")
    parser.add_argument("--with", metavar="FILE", dest="beside",
                        help="add to the timeline another one, such as that of baton-sim --trace, "
                        "so that it begins when all ranks have come to an epoch")
    parser.add_argument("--epoch", metavar="NUMBER", type=int,
                        help="the epoch for --with; else one that took as long as most")
    parser.add_argument("--flight-recorder", metavar="PREFIX",
                        help="write dumps for PyTorch's fr_trace: PREFIX0, PREFIX1, ...")
    parser.add_argument("--html", metavar="FILE",
                        help="write the report, with a picture of when ranks came")
    return parser


def main(given: Optional[List[str]] = None) -> int:
    """Runs the command; returns its exit status."""
    parser = _parser()
    asked = parser.parse_args(given)
    if (asked.simulate or asked.beside) and not asked.output:
        parser.error("--simulate and --with: need --output")
    # Only here, so that the help needs neither numpy nor the library.
    from baton import _trace_export, _trace_files, _trace_replay, _trace_report
    try:
        trace = _trace_files.read(asked.folder)
        if asked.output:
            mode = asked.simulate
            _trace_export.write_timeline(trace, asked.output, mode or "",
                                         _trace_replay.simulated(trace, mode) if mode else (),
                                         asked.beside or "", asked.epoch)
        if asked.flight_recorder:
            _trace_export.write_flight_recorder(trace, asked.flight_recorder)
        if asked.html or not (asked.output or asked.flight_recorder):
            said = _trace_report.text(trace, _trace_replay.lines(trace))
            if asked.html:
                _trace_report.write_page(trace, said, asked.html)
            else:
                sys.stdout.write(said)
    except (OSError, ValueError) as failed:
        sys.stderr.write(f"baton-trace: {failed}\n")
        return 1
    for why in trace.skipped:
        sys.stderr.write(f"baton-trace: not read: {why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
