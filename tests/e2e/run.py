"""`make e2e`: a cluster, an image in it, then the suites that need both.

The cluster is that of the current kubeconfig context when FAIRLEAD_E2E_CONTEXT names it (then
FAIRLEAD_E2E_IMAGE and FAIRLEAD_E2E_SPARK_IMAGE name images that its nodes can pull); else a
three-node kind cluster, made and loaded by the tool that CLUSTER_TOOL names. Arguments go to
pytest; without them, what needs an API server alone runs side by side while the images go to the
nodes, and then everything else one by one.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL_IMAGE = "localhost/fairlead:e2e"
LOCAL_SPARK_IMAGE = "localhost/fairlead-spark:e2e"
SUITES = ("tests/kubernetes", "tests/unit/charts", "tests/e2e")
USERS_OF_SPARK = ("stream_jobs", "secured_cluster")
Images = dict[str, str]
"""The variables that name them for the tests."""


class PreparationError(Exception):
    """There is no cluster to test on; the text says what to do."""


def main() -> int:
    arguments = sys.argv[1:]
    try:
        with ThreadPoolExecutor() as pool:
            images = prepare(pool, wants_spark=uses_spark(arguments))
            if arguments:
                return run_tests(images.result(), "-m", "kubernetes", *arguments)
            # They start no pods, but processes on this machine.
            side_by_side = ("--numprocesses", "3", "--dist", "loadfile")
            failed = run_tests({}, "-m", "kubernetes and not alone", *side_by_side, *SUITES)
            failed_alone = run_tests(images.result(), "-m", "kubernetes and alone", *SUITES)
            return failed or failed_alone
    except PreparationError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1


def uses_spark(arguments: list[str]) -> bool:
    """Return whether any test would run in Spark's image, which is five times as large."""
    return not arguments or any(
        argument == SUITES[-1] or any(user in argument for user in USERS_OF_SPARK)
        for argument in arguments
    )


def run_tests(images: Images, *arguments: str) -> int:
    """Return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "--durations=8", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | images, check=False).returncode


def prepare(pool: ThreadPoolExecutor, *, wants_spark: bool) -> Future[Images]:
    """Return when there is a cluster; its nodes have the images once the future is done.

    Raise PreparationError where there is no cluster; the future does where there is no image.
    """
    if context := os.environ.get("FAIRLEAD_E2E_CONTEXT"):
        if not os.environ.get("FAIRLEAD_E2E_IMAGE"):
            raise PreparationError("FAIRLEAD_E2E_IMAGE has to name an image that nodes can pull")
        step("context", "kubectl", "config", "use-context", context)
        # The nodes pull what the environment names by themselves.
        return pool.submit(dict)
    tool = Path(os.environ.get("CLUSTER_TOOL") or "")
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
    cluster = pool.submit(step, "kind cluster", tool, "up")
    images = pool.submit(load_images, tool, cluster, wants_spark=wants_spark)
    cluster.result()
    return images


def load_images(tool: Path, cluster: Future[None], *, wants_spark: bool) -> Images:
    """Build both images at the same time as the cluster: none of them keeps both cores busy."""
    step("base image", tool, "base-image")
    build = (tool, "image-build", "--", "-t", LOCAL_IMAGE, "-f", "images/Dockerfile", ".")
    build_spark = ("make", "images-spark", f"SPARK_IMAGE={LOCAL_SPARK_IMAGE}")
    with ThreadPoolExecutor() as pool:
        image = pool.submit(step, "image", *build)
        spark_image = pool.submit(step, "image of Spark", *build_spark) if wants_spark else None
        image.result()
        cluster.result()
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
