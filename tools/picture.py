"""Make the README's pictures by the README's own example: docs/pictures/graph.svg and page.png.

    python tools/picture.py

Needs the extra ``plot`` and Chromium (``apt-get install chromium``). The picture of the page holds
what its page says in words; a test compares it with what the example says today.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"

import blocks

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
PAGE = "page.png"
# Of the picture in pixels, before it is made smaller; and its colours.
SIZE, COLOURS = (1180, 1330), 48
#: By this name the picture has the words of its page.
WORDS = "words"
# Seconds differ from run to run.
_SECONDS = re.compile(r"[\d.]+ seconds")


def example(more: str, directory: Path) -> blocks.Output:
    """Run the README's first block and further lines in a directory."""
    text = blocks.blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))[0].text
    return next(blocks.run(f"```python\n{text}{more}```\n", "README.md", directory))[1]


def words_of(page: Path) -> str:
    """Return what a page says at its top."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.S)
    if found is None:
        raise ValueError(f"{page} is no page of a run")
    data = json.loads(found[1])
    said = [data["heading"], data["verdict"], data["question"]]
    for section in data["first"]:
        for block in section["blocks"]:
            said += [block["text"]] if "text" in block else block.get("items", [])
    return _SECONDS.sub("seconds", "\n".join(said))


def words_in(picture: Path) -> str:
    """Return the words that the picture of a page holds."""
    from PIL import Image

    with Image.open(picture) as opened:
        return str(opened.text[WORDS])  # type: ignore[attr-defined]


def draw_page(page: Path, target: Path) -> None:
    """Draw the top of a page by Chromium."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        sys.exit("There is no Chromium: apt-get install chromium")
    shot = page.with_suffix(".png")
    flags = ["--headless", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
    flags += ["--virtual-time-budget=5000", f"--screenshot={shot}"]
    # Chromium's sandbox refuses to start as root.
    flags += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    subprocess.run([chromium, *flags, page.as_uri()], check=True, capture_output=True)
    info = PngInfo()
    info.add_text(WORDS, words_of(page))
    with Image.open(shot) as drawn:
        small = drawn.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(target, optimize=True, pnginfo=info)


def main() -> None:
    """Run the example and keep what it draws."""
    import matplotlib as mpl

    # Text stays text, which makes the file small; without dates it does not change.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "flwr-causal", "figure.dpi": 72}
    with tempfile.TemporaryDirectory() as directory:
        found = example("run.graph.draw()\n", Path(directory))
        print(found.text)
        (PICTURES / "graph.svg").write_text(found.pictures[0], encoding="utf-8")
        draw_page(Path(directory, "page.html"), PICTURES / PAGE)


if __name__ == "__main__":
    main()
