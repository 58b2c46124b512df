#!/usr/bin/env python3
"""Checks the server's page in Chromium, by its debugging protocol over two pipes.

    page.py HOST:PORT PORT PID PROFILE FOLDER

HOST:PORT is the server's HTTP address, PORT the port of the cache, PID the server's process, PROFILE
the folder of Chromium's profile. Screenshots are stored in FOLDER.
"""

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time

from doors import Client

SCREENS = {"phone": (390, 844), "small-phone": (320, 640), "desk": (1280, 900)}


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, profile):
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()

        def take_pipes():
            # Chromium reads commands from descriptor 3 and writes answers to 4.
            kept = os.dup(to_browser), os.dup(from_browser)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--no-first-run", "--disable-background-networking", "--user-data-dir=" + profile, "about:blank"],
            close_fds=False, preexec_fn=take_pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.last, self.unread, self.events = 0, b"", []
        targets = self.call("Target.getTargets", on_page=False)["targetInfos"]
        target = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", on_page=False, targetId=target["targetId"], flatten=True)["sessionId"]

    def call(self, method, on_page=True, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if on_page:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(60)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise AssertionError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def read(self, seconds):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.answers], [], [], seconds)
            if not ready:
                raise AssertionError("Chromium does not answer")
            got = os.read(self.answers, 1 << 16)
            if not got:
                raise AssertionError("Chromium has ended")
            self.unread += got
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError("%s: %s" % (expression, result["exceptionDetails"]))
        return result["result"].get("value")

    def until(self, expression, expected, seconds=60):
        """Waits until an expression has this value."""
        end = time.monotonic() + seconds
        while True:
            value = self.eval(expression)
            if value == expected:
                return
            if time.monotonic() > end:
                raise AssertionError("%s is %r, not %r" % (expression, value, expected))
            time.sleep(0.1)

    def screen(self, name):
        width, height = SCREENS[name]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=name != "desk")

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def complaints(self):
        """Returns console messages, exceptions, violations of the policy, and failed loads.

        A load that a new load of the page has cut short has not failed.
        """
        self.eval("0")
        said = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                said.append(params["args"])
            elif event.get("method") == "Log.entryAdded":
                said.append(params["entry"])
            elif event.get("method") == "Network.loadingFailed":
                if not params.get("canceled") and params["errorText"] != "net::ERR_ABORTED":
                    said.append(params)
        return said

    def asked(self):
        requests = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return {url for url in requests if not url.startswith("data:")}

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


ROWS = "[...document.querySelectorAll('#tenants tr')]"


def cells(name):
    """Returns the expression for the cells of a tenant: memory and number of values."""
    return "%s.filter(r => r.querySelector('th div').textContent === %s).map(r => [r.cells[1].textContent, r.cells[2].textContent])[0]" % (
        ROWS, json.dumps(name))


def text(identity):
    return "document.getElementById(%s).textContent" % json.dumps(identity)


def main(http, port, server, profile, folder):
    client = Client(port)
    for n in range(37):
        assert client.set(b"shop:hidden-key-%d" % n, b"hidden-value" * 10) == b"STORED\r\n"
    assert client.set(b"<b>bold</b>:k", b"x") == b"STORED\r\n"
    for n in range(30):
        client.socket.sendall(b"get shop:hidden-key-%d\r\n" % n)
        client.replies.readline(), client.replies.readline(), client.replies.readline()
    for n in range(10):
        client.ask(b"get shop:missing-%d\r\n" % n)

    browser = Browser(profile)
    try:
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(domain + ".enable")
        browser.screen("phone")
        browser.call("Page.navigate", url="http://%s/" % http)
        look(browser, client, folder)
        assert browser.complaints() == [], browser.complaints()
        asked = browser.asked()
        assert asked and all(url.startswith("http://%s/" % http) for url in asked), asked
        print("nothing on the console; asked for %s, and no other host" % ", ".join(sorted(url.split("/", 3)[3] or "/" for url in asked)))

        os.kill(int(server), signal.SIGTERM)
        browser.until(text("status"), "no answer: the figures are old")
        print("the page reports a stopped server")
    finally:
        browser.close()


def look(browser, client, folder):
    # The page shows the numbers of the server's `stats`.
    browser.until(cells("shop") + "?.[1]", "37")
    charged = int(client.stats(b"stats tenants")[b"shop:bytes"])
    browser.until(cells("shop") + "[0]", "%.1f KiB" % (charged / 1024))
    browser.until(text("items"), "38")
    browser.until(text("ratio-all"), "75.0 %")
    # With --pressure the budget is lower for a while if the machine was just short of memory.
    browser.until(text("budget"), "8.0 MiB", seconds=180)
    browser.until(text("level"), "calm", seconds=180)
    limits = "%s.map(r => r.querySelector('.limits').textContent).filter(t => t).sort().join()" % ROWS
    browser.until(limits, "low 2.0 MiB,max 1.0 MiB")
    browser.until("document.querySelector('#tenants b') === null && %s.some(r => r.textContent.includes('<b>bold<'))" % ROWS, True)
    print("shop holds 37 values and %d bytes, there as here; a name with markup in it is text" % charged)

    # The page follows changes.
    for n in range(37, 57):
        client.set(b"shop:hidden-key-%d" % n, b"y" * 100)
    browser.until(cells("shop") + "[1]", "57")
    for plot, lines in (("memory", 2), ("pressure", 2), ("hits", 1), ("reclaim", 2)):
        drawn = "[...document.querySelectorAll('#%s-plot polyline')].map(l => l.getAttribute('points').split(' ').length > 2)" % plot
        if plot == "hits":
            client.ask(b"get shop:missing\r\n")
        browser.until(drawn + ".join()", ",".join(["true"] * lines))
    print("20 more were shown within seconds; the plots go on")

    # A thousand tenants, more than the page shows, and than keys create under this budget.
    for n in range(1000):
        client.expect(b"tenant set tenant%d low=0\r\n" % n, b"OK\r\n")
    value = b"z" * 9000
    for n in range(1500):
        client.set(b"tenant%d:hidden-key" % (n % 1000), value)
    browser.until(text("tenant-count"), "1,004")
    browser.until("%s.length" % ROWS, 21)
    browser.until("%s.at(-1).querySelector('th div').textContent" % ROWS, "984 others")
    browser.until("Number(%s.replace(/,/g, '')) >= 0" % text("evicted"), True)
    evictions = int(client.stats()[b"evictions"])
    assert evictions > 0, "it was to evict"
    print("1,004 tenants: 20 rows, and one for the others; %d values were evicted" % evictions)

    for name in SCREENS:
        browser.screen(name)
        browser.until("innerWidth", SCREENS[name][0])
        wide = browser.eval("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1] == SCREENS[name][0], "%s: %d pixels wide on a screen of %d" % (name, *wide)
        small = browser.eval("Math.min(...[...document.querySelectorAll('p, td, th, span, h2')].map(e => parseFloat(getComputedStyle(e).fontSize)))")
        assert small >= 14, "%s: letters of %s pixels" % (name, small)
        browser.picture(os.path.join(folder, name + ".png"))
    browser.screen("phone")
    broken = browser.eval("%s.map(r => r.querySelector('th div')).filter(d => d.offsetHeight > 1.6 * parseFloat(getComputedStyle(d).fontSize)).length" % ROWS)
    assert broken == 0, "%d names of tenants take more than a line on a phone" % broken
    cut = browser.eval("%s.map(r => r.querySelector('th div')).filter(d => d.scrollWidth > d.clientWidth && d.textContent.length < 12).map(d => d.textContent).join()" % ROWS)
    assert cut == "", "short names are cut on a phone: " + cut
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#memory-plot polyline').length > 0 && "
                  "document.querySelector('#memory-plot polyline').getAttribute('points').split(' ').length > 10", True)
    print("names take one line on a phone; a page that is opened again shows the time before")
    unnamed = browser.eval("[...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length")
    assert unnamed == 0, "%d plots have no accessible name" % unnamed
    print("fits screens of %s pixels, letters of 14 and more; each plot has its words" % ", ".join(str(w) for w, _ in SCREENS.values()))

    colours = set()
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.add(browser.eval("getComputedStyle(document.body).backgroundColor"))
        browser.screen("phone")
        browser.picture(os.path.join(folder, "phone-%s.png" % scheme))
    assert len(colours) == 2, colours
    shown = browser.eval("fetch('state.json').then(a => a.text()).then(state => state + document.documentElement.outerHTML)")
    assert "hidden" not in shown, "a key or a value is on the page"
    print("light and dark; no key, no value")


if __name__ == "__main__":
    main(*sys.argv[1:])
