#!/usr/bin/env python3
"""junit_check.py FILE "tests=4 failures=1 errors=0 skipped=0 [failed=NAME,NAME]": JUnit XML as CI systems read it. The elements
and attributes are those that the schemas of Jenkins (junit-10.xsd) and GitLab share; counts must be what is there."""
import sys
import xml.etree.ElementTree as ET

ALLOWED = {  # element: (attributes that are needed, that may be there, elements inside)
    "testsuites": ({"tests", "failures", "errors"}, {"name", "time", "skipped", "disabled"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"time", "skipped", "timestamp", "hostname", "id", "package"}, {"testcase"}),
    "testcase": ({"name", "classname"}, {"time", "file"}, {"skipped", "failure", "error", "system-out", "system-err"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
}


def follow(e):
    needed, optional, inside = ALLOWED[e.tag]
    there = set(e.attrib)
    assert needed <= there <= needed | optional, (e.tag, there)
    for key in ("tests", "failures", "errors", "skipped"):
        assert key not in there or int(e.get(key)) >= 0
    assert "time" not in there or float(e.get("time")) >= 0
    if e.tag == "testcase":
        assert len(e) <= 1 and e.get("name") and e.get("classname"), e.attrib
    for child in e:
        assert child.tag in inside, (e.tag, child.tag)
        follow(child)


root = ET.parse(sys.argv[1]).getroot()
assert root.tag == "testsuites"
follow(root)
cases = list(root.iter("testcase"))
names = [(c.get("classname"), c.get("name")) for c in cases]
assert len(set(names)) == len(names), names
there = {"tests": len(cases), **{key: len(list(root.iter(tag))) for key, tag in
                                 (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))}}
failed = ",".join(sorted(c.get("name") for c in cases if c.find("failure") is not None))
for e in [root, *root]:
    assert all(int(e.get(k)) == v for k, v in there.items()), (e.attrib, there)
for want in sys.argv[2].split():
    key, _, value = want.partition("=")
    got = failed if key == "failed" else str(there[key])
    assert got == value, f"{key}: {got} instead of {value}"
