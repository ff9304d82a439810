"""The studio's pictures in the documentation: python docs/figures/studio.py [--runs FOLDER]

It runs what they show, quickly, where the store does not have it yet; it needs Chromium, playwright and
heedful[studio].
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from heedful import lab

HERE = Path(__file__).parent


def number(result: lab.Result) -> str:
    """How the pages call the model of a run's first trial."""
    return str(result.trials[0].id)


def save(page: Page, name: str, height: int) -> None:
    """The top of a page as a small PNG: calm pages need few colours."""
    page.wait_for_timeout(800)
    page.set_viewport_size({"width": 1180, "height": height})
    page.wait_for_timeout(800)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(256, dither=Image.Dither.NONE).save(HERE / f"{name}.png", optimize=True)
    print(HERE / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", default="runs")
    runs = parser.parse_args().runs
    curves = lab.run("zero-grad", profile="quick", store=runs)
    gpt = number(lab.run("fairytales", profile="quick", seeds=1, store=runs))
    gat = number(lab.run("cora", profile="quick", seeds=1, settings={"model": "gat"}, store=runs))
    command = [sys.executable, "-m", "heedful", "studio", "--runs", runs, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio, sync_playwright() as driver:
        assert studio.stdout is not None
        address = re.findall(r"http://\S+", studio.stdout.readline())[0]
        home = address.partition("/?")[0]
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        page = browser.new_page(viewport={"width": 1180, "height": 900})
        page.goto(address)

        page.goto(f"{home}/runs/{curves.run.id}")
        page.wait_for_selector("#curves .main-svg")
        save(page, "studio-run", 1000)

        page.goto(f"{home}/attention?who={gat}&most=48")
        page.wait_for_selector("#looking[aria-busy=false] canvas[data-part=map]", timeout=120_000)
        save(page, "studio-attention", 1690)

        page.emulate_media(color_scheme="dark")
        page.goto(f"{home}/generate")
        page.get_by_label("model").select_option(gpt)
        page.get_by_label("prompt").fill("Assert statements are ")
        page.get_by_label("temperature").fill("0.7")
        page.get_by_label("seed").fill("4")
        page.get_by_role("button", name="Write").click()
        page.wait_for_selector("#halt[hidden]", state="attached")
        page.locator("#text .token").nth(40).hover()
        save(page, "studio-generate", 920)
        browser.close()
        studio.terminate()


if __name__ == "__main__":
    main()
