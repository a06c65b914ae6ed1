"""`make e2e`: a cluster, an image in it, then the suites that need both.

The cluster is that of the current kubeconfig context when FAIRLEAD_E2E_CONTEXT names it (then
FAIRLEAD_E2E_IMAGE and FAIRLEAD_E2E_SPARK_IMAGE name images that its nodes can pull); else a
three-node kind cluster, made and loaded by the tool that CLUSTER_TOOL names. Arguments go to
pytest.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL_IMAGE = "localhost/fairlead:e2e"
LOCAL_SPARK_IMAGE = "localhost/fairlead-spark:e2e"
SUITES = ("tests/kubernetes", "tests/unit/charts", "tests/e2e")


class PreparationError(Exception):
    """There is no cluster to test on; the text says what to do."""


def main() -> int:
    arguments = sys.argv[1:] or list(SUITES)
    # The image of Spark is five times as large: only where something runs on it.
    users = ("stream_jobs", "secured_cluster")
    wants_spark = any(
        argument == SUITES[-1] or any(user in argument for user in users) for argument in arguments
    )
    try:
        if os.environ.get("FAIRLEAD_E2E_CONTEXT"):
            images = use_given_cluster(os.environ["FAIRLEAD_E2E_CONTEXT"])
        else:
            images = make_cluster(Path(os.environ.get("CLUSTER_TOOL") or ""), wants_spark)
    except PreparationError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-m", "kubernetes", "--durations=8", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | images, check=False).returncode


def use_given_cluster(context: str) -> dict[str, str]:
    """The images that the environment names, which the nodes pull by themselves."""
    if not os.environ.get("FAIRLEAD_E2E_IMAGE"):
        raise PreparationError("FAIRLEAD_E2E_IMAGE has to name an image that nodes can pull")
    step("context", "kubectl", "config", "use-context", context)
    return {}


def make_cluster(tool: Path, wants_spark: bool) -> dict[str, str]:
    """A kind cluster with the images on every node; the variables that name them.

    The cluster and both images are made at the same time: none of them keeps both cores busy.
    """
    if not tool.is_file():
        raise PreparationError(
            "no cluster: set FAIRLEAD_E2E_CONTEXT and FAIRLEAD_E2E_IMAGE, or CLUSTER_TOOL to a "
            "program with the verbs setup, up, base-image, image-build and load"
        )
    step("cluster tools", tool, "setup")
    if shutil.which("docker") is None:
        raise PreparationError("docker is missing although the cluster tool has been set up")
    if os.environ.get("CI"):
        # Whatever an earlier run has left there.
        step("no old cluster", tool, "down")
    build = (tool, "image-build", "--", "-t", LOCAL_IMAGE, "-f", "images/Dockerfile", ".")
    build_spark = ("make", "images-spark", f"SPARK_IMAGE={LOCAL_SPARK_IMAGE}")
    with ThreadPoolExecutor() as pool:
        cluster = pool.submit(step, "kind cluster", tool, "up")
        # Both images stand on it.
        step("base image", tool, "base-image")
        image = pool.submit(step, "image", *build)
        spark_image = pool.submit(step, "image of Spark", *build_spark) if wants_spark else None
        cluster.result()
        image.result()
        step("image on the nodes", tool, "load", LOCAL_IMAGE)
        if spark_image is None:
            return {"FAIRLEAD_E2E_IMAGE": LOCAL_IMAGE}
        spark_image.result()
        step("image of Spark on the nodes", tool, "load", LOCAL_SPARK_IMAGE)
    return {"FAIRLEAD_E2E_IMAGE": LOCAL_IMAGE, "FAIRLEAD_E2E_SPARK_IMAGE": LOCAL_SPARK_IMAGE}


def step(name: str, *command: str | Path) -> None:
    """Run one command; say how long it took, and what it printed only if it failed."""
    started = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took_s = time.monotonic() - started
    if done.returncode:
        print(done.stdout[-8000:], file=sys.stderr)
        raise PreparationError(
            f"{name}: failed after {took_s:.0f} s: {' '.join(map(str, command))}"
        )
    print(f"e2e: {name}: {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
