"""`python -m fairlead_operator.resources [--check]`: writes what follows from the declarations."""

import argparse
import sys
from pathlib import Path
from typing import Final

from fairlead_operator.resources.crd import build_crd, build_kept_crd, render_manifests
from fairlead_operator.resources.definitions import DEFINITIONS
from fairlead_operator.resources.permissions import build_deletion_protection, build_user_roles
from fairlead_operator.resources.reference import render_reference

ROOT: Final = Path(__file__).resolve().parents[3]
CHART_FILES: Final = "charts/fairlead/files"
"""Plain manifests; the chart's templates include them, depending on its values."""


def generated_files() -> dict[str, str]:
    """Yield every generated file by its path below the project's folder."""
    files = {
        "docs/resources.md": render_reference(DEFINITIONS),
        f"{CHART_FILES}/deletion-protection.yaml": render_manifests(*build_deletion_protection()),
        f"{CHART_FILES}/user-roles.yaml": render_manifests(*build_user_roles()),
    }
    for definition in DEFINITIONS:
        file = f"{definition.crd_name}.yaml"
        files[f"crds/{file}"] = render_manifests(build_crd(definition))
        files[f"{CHART_FILES}/crds/{file}"] = render_manifests(build_kept_crd(definition))
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the files that differ, or with --check only name them; the exit code counts them."""
    parser = argparse.ArgumentParser(prog="fairlead_operator.resources", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a file is not up to date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    options = parser.parse_args(arguments)
    stale = [
        (options.root / name, text)
        for name, text in generated_files().items()
        if not (options.root / name).exists() or (options.root / name).read_text() != text
    ]
    for path, text in stale:
        if options.check:
            print(f"{path} is not what the declarations say: run make generate", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
