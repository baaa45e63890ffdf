"""Every series of each of the three processes, before anybody has asked anything."""

import subprocess
import unittest

from series import CACHE, DECODE, EVERYBODY, GATEWAY, OF_A_MODEL, STORE, VISION, Scrape, check_fresh
from test_services import FleetTest, get_page

KEEPS_RECORDS = {**CACHE, **STORE, **OF_A_MODEL, **EVERYBODY}


class SeriesTest(FleetTest):
    def setUp(self):
        super().setUp()
        # Each of name, table and page.
        self.pages = [(process.name, table, get_page(process, "/metrics")) for process, table in (
            (self.fleet.gateway, {**GATEWAY, **EVERYBODY}),
            (self.fleet.vision[0], {**VISION, **KEEPS_RECORDS}),
            (self.fleet.decode[0], {**DECODE, **KEEPS_RECORDS}))]

    def test_each_process_has_its_series_and_labels_and_they_begin_at_0(self):
        for name, table, page in self.pages:
            with self.subTest(name):
                check_fresh(self, Scrape(page), table, "tessera")

    def test_promtool_finds_nothing_to_say(self):
        for name, _, page in self.pages:
            done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), name)


if __name__ == "__main__":
    unittest.main()
