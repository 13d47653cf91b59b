"""The option of verbs that a cluster can work for."""

from __future__ import annotations

import argparse


def add_dask(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--dask``; `what` says what the cluster does."""
    parser.add_argument("--dask", metavar="local:N|ADDRESS",
                        help=f"let a cluster of Dask {what}: N processes on this machine, or the one whose scheduler "
                        "has this address, such as tcp://host:8786")
