"""Takes the README's figure out of the notebook that draws it; --check only compares."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NOTEBOOK, FIGURE = FOLDER / "03-off-policy-weighting.ipynb", FOLDER.parent / "docs" / "figure.png"


def drawn() -> bytes:
    """The one picture among the stored outputs."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    [picture] = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    return base64.b64decode("".join(picture))


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        same = FIGURE.is_file() and FIGURE.read_bytes() == drawn()
        print(f"{FIGURE.name}: {'up to date' if same else 'differs from its notebook; run `make notebooks`'}")
        return 0 if same else 1
    FIGURE.write_bytes(drawn())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
