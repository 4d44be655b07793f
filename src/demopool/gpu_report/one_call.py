"""One call of a candidate for a profiler to look at, after others that load and compile.

``python -m demopool.gpu_report.one_call cupy:cuda dense democratic vgg-b8``
"""

from __future__ import annotations

import sys

from .. import pooling
from ..machine import cuda_driver
from ..problem.candidates import Candidate, Subject
from ..problem.cases import from_name
from ..trials import jobs

_WARM_UP = 3
"""Calls before: a CUDA graph is made in the second."""


def main(backend: str, route: str, descriptor: str, name: str) -> None:
    case = from_name(name, descriptor)
    subject = Subject("descriptor", case.descriptor)
    job = jobs.prepare(pooling, subject, Candidate(backend, route), case)
    for _ in range(_WARM_UP):
        job.device.wait(job.run())
    with cuda_driver.profiled():
        job.device.wait(job.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
