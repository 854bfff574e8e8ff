"""The page in a real browser: nothing is asked for, nothing goes wrong, everything is seen."""

import io

import numpy as np
import pytest
from PIL import Image

from moml.report.page.document import report
from tests.report.chromium import Chromium, found

pytestmark = pytest.mark.skipif(
    found() is None, reason="no Chromium on this machine; Debian has it as the package chromium"
)
SEEN = """
[...document.querySelectorAll('svg[role=img]')].map(svg => {
  const box = svg.getBoundingClientRect();
  const drawn = [...svg.querySelectorAll('polyline, circle, rect, polygon')];
  const seen = drawn.filter(one => one.getBoundingClientRect().width > 0);
  return [box.width, box.height, seen.length];
})"""
FONTS = """
Math.min(...[...document.querySelectorAll('svg[role=img] text')].map(text => {
  const {a, b} = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
}))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Chromium(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(sine, plain, looked, place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moml.report.page.document.look", lambda folder, config, done: looked)
        report([sine, plain], place / "page.html", score=True)
    return (place / "page.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page(browser, address, width, scheme):
    tab = browser.open(address, width, 900, scheme)
    assert tab.requests() == [address] and tab.complaints() == []
    pictures = tab.ask(SEEN)
    assert len(pictures) == 3 + 2 * 8
    assert all(min(wide, high) > 100 and drawn > 0 for wide, high, drawn in pictures)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(FONTS) > 10
    shown = np.asarray(Image.open(io.BytesIO(tab.picture())).convert("L"), float)
    assert shown.shape == (900, width)
    paper, ink = np.median(shown), np.abs(shown - np.median(shown)) > 100
    assert (paper > 200) == (scheme == "light") and (paper < 60) == (scheme == "dark")
    assert 0.005 < ink.mean() < 0.3
    tab.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.requests() == [address] and tab.complaints() == []
    tab.close()


def test_requests_and_errors_would_be_seen(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://example.org/x.png'><script>nothing()</script>")
    tab = browser.open(bad.as_uri(), 390, 900, "light")
    assert tab.requests() == [bad.as_uri(), "http://example.org/x.png"]
    assert len(tab.complaints()) >= 2 and tab.ask(SEEN) == []
    tab.close()
