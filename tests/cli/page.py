"""The page of thermo-serve, in a browser: a conversation, stop, reload, editing, 375 pixels, the keyboard alone, hostile text, labels, contrast, a key.
page.py BIN PACK PLAN TEMPLATE; CHROMIUM: the browser."""
import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, 'tests')
from tap import done, point

BIN, PACK, PLAN, TEMPLATE = sys.argv[1:5]
KEY = 'open sesame'
KIND = 'Be kind, ' + 'and tell of ships, and tell of ships, ' * 4 + 'if you can.'


def serve(**env):
    return start(['--model', PACK, '--plan', PLAN], **env)


def start(which, **env):
    p = subprocess.Popen([f'{BIN}/thermo-serve', *which, '--port', '0', '--', '--chat-template', TEMPLATE],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env})
    return p, int(re.search(r':(\d+)\n', p.stdout.readline())[1])


def ask(port, path, body=None):
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    c.request('POST' if body else 'GET', path, json.dumps(body) if body else None)
    text = c.getresponse().read().decode()
    c.close()
    return text


class Model(http.server.BaseHTTPRequestHandler):
    """What the server has, but for chats: those are made up, so that what a model writes is anything, and slow."""
    protocol_version = 'HTTP/1.1'
    real = 0
    script = []         # of each chat to come: (status, pieces of thought, pieces of text, pause, finish), the last one again and again
    asked = []
    gone = threading.Event()

    def log_message(self, *_):
        pass

    def reply(self, status, kind, text, headers=()):
        self.send_response(status)
        for k, v in [('Content-Type', kind), ('Content-Length', str(len(text))), *headers]:
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        c = http.client.HTTPConnection('127.0.0.1', Model.real, timeout=60)
        c.request('GET', self.path, headers={'Host': '127.0.0.1'})
        r = c.getresponse()
        self.reply(r.status, r.getheader('Content-Type'), r.read(),
                   [(k, v) for k, v in r.getheaders() if k in ('Content-Security-Policy', 'X-Content-Type-Options')])

    def do_POST(self):
        Model.asked.append(json.loads(self.rfile.read(int(self.headers['Content-Length']))))
        status, thought, text, pause, finish = Model.script.pop(0) if len(Model.script) > 1 else Model.script[0]
        if status != 200:
            code = 'context_length_exceeded' if status == 400 else None
            self.reply(status, 'application/json', json.dumps({'error': {'message': 'no room', 'code': code}}).encode(), [('Retry-After', '7')] if status == 429 else [])
            return
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        try:
            for field, piece in [('reasoning_content', p) for p in thought] + [('content', p) for p in text]:
                self.event({'choices': [{'index': 0, 'delta': {field: piece}, 'finish_reason': None}]})
                time.sleep(pause)
            if finish:
                self.event({'choices': [{'index': 0, 'delta': {}, 'finish_reason': finish}]})
                self.event({'choices': [], 'usage': {'prompt_tokens': 200, 'completion_tokens': 56, 'prompt_tokens_details': {'cached_tokens': 9}}})
                self.wfile.write(b'data: [DONE]\n\n')
        except OSError:
            Model.gone.set()
        self.close_connection = True

    def event(self, j):
        self.wfile.write(f': a comment\n\ndata: {json.dumps(j)}\n\n'.encode())
        self.wfile.flush()


HOSTILE = r'''<img src=x onerror="window.pwned=1"><script>window.pwned=1</script><svg onload=window.pwned=1>

[one](javascript:window.pwned=1) [two](JaVaScRiPt:window.pwned=1) [three](data:text/html,<script>window.pwned=1</script>)
[four](&#106;avascript:alert) [five](vbscript:x) [six](//evil.example) [seven](/v1/models) ![eight](http://evil.example/x.png)
[nine](https://good.example/a_(b)) <https://good.example> [<img src=x onerror=window.pwned=1>](https://good.example/x)
<a href="javascript:window.pwned=1">ten</a> [ten](java
script:window.pwned=1) [eleven]( javascript:window.pwned=1)

```"><img src=x onerror=window.pwned=1>
</code></pre><img src=x onerror=window.pwned=1>
```

| <img src=x onerror=window.pwned=1> | b |
|--|--|
| <iframe src=javascript:window.pwned=1> | [x](javascript:window.pwned=1) |

# <style>body { display: none }</style>
> <form action=http://evil.example><input name=key></form>
'''
# Markdown, and what it has to be: tags without attributes.
MARKS = [
    ('a *b* **c** `d*e*` ~~f~~ \\*g\\* snake_case_name 2 * 3 * 4', '<p>a <em>b</em> <strong>c</strong> <code>d*e*</code> <del>f</del> *g* snake_case_name 2 * 3 * 4</p>'),
    ('**a *b* c**', '<p><strong>a <em>b</em> c</strong></p>'),
    ('# A #\n\n### B\ntext\nmore', '<h3>A</h3><h5>B</h5><p>text<br>more</p>'),
    ('1. a\n   - b\n   - c\n2. d', '<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>'),
    ('- a\n\n- b', '<ul><li><p>a</p></li><li><p>b</p></li></ul>'),
    ('> a\n> - b\n\nc', '<blockquote><p>a</p><ul><li>b</li></ul></blockquote><p>c</p>'),
    ('| a | b |\n|:-|-:|\n| `c` | d\\|e |', '<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>c</code></td><td>d|e</td></tr></tbody></table></div>'),
    ('---', '<hr>'), ('a | b', '<p>a | b</p>'), ('* * *', '<hr>'), ('**open', '<p>**open</p>'), ('see https://a.example/b).', '<p>see <a>https://a.example/b</a>).</p>'),
    ('[t](https://a.example)', '<p><a>t</a></p>'), ('a & b < c', '<p>a &amp; b &lt; c</p>'),
]
LONG = ['[' * 60000, '*' * 60000, '**a ' * 20000, '`' * 60000, '` `` ' * 20000, '> ' * 30000, '- ' * 30000, '|' * 60000, '[a](' * 15000, '_a ' * 30000,
        '\n'.join('> ' * k for k in range(200)), '\n'.join(' ' * k + '- a' for k in range(500)), '![' * 30000, '\\' * 60000, '```\n' * 20000, '|-' * 30000 + '\n' + '|-' * 30000]
NAMES = '''() => [...document.querySelectorAll('button, a[href], input, select, textarea, summary, [tabindex="0"], [role=img], dialog, aside, section, article')].filter(e => {
  const by = e.getAttribute('aria-labelledby'), label = e.labels && e.labels.length ? e.labels[0].textContent : '';
  const name = e.getAttribute('aria-label') || (by && document.getElementById(by) || {}).textContent || label || (/^(BUTTON|A|SUMMARY)$/.test(e.tagName) ? e.textContent : '');
  return !name.trim();
}).map(e => e.outerHTML.slice(0, 120))'''
RULES = '''() => {
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id), wrong = ids.filter((id, k) => ids.indexOf(id) !== k);
  for (const a of ['aria-labelledby', 'aria-controls', 'aria-describedby'])
    for (const e of document.querySelectorAll(`[${a}]`)) if (!document.getElementById(e.getAttribute(a))) wrong.push(e.outerHTML.slice(0, 80));
  if (document.querySelectorAll('main').length !== 1 || document.querySelectorAll('h1').length !== 1 || !document.documentElement.lang || !document.title) wrong.push('landmarks');
  return wrong;
}'''
# Texts of less than 4.5 to 1 against what is behind them.
CONTRAST = '''() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((n, v, k) => n + v * [.2126, .7152, .0722][k], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.matches(':disabled') || !e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`);
  }
  return bad;
}'''
BARE = '''text => {
  const to = document.createElement('div');
  show_text(to, text);
  for (const e of to.querySelectorAll('*')) for (const a of [...e.attributes]) e.removeAttribute(a.name);
  return to.innerHTML;
}'''
faults = []


def page_of(browser, port, width=1280, height=800, scheme='light', path='/'):
    context = browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
    page = context.new_page()
    page.on('pageerror', lambda e: faults.append(str(e)))
    page.on('console', lambda m: faults.append(m.text) if m.type == 'error' and 'the server responded' not in m.text and 'Failed to load' not in m.text else None)
    page.on('dialog', lambda d: (faults.append(f'a dialog: {d.message}'), d.dismiss()))
    page.set_default_timeout(30000)
    page.goto(f'http://127.0.0.1:{port}{path}')
    return page


def say(page, text, wait=True):
    page.fill('#ask', text)
    page.press('#ask', 'Enter')
    if wait:
        ready(page)


def ready(page):
    page.locator('#send').wait_for(state='visible')


def last(page, what='.text'):
    return page.locator('.turn.model').last.locator(what).last.inner_text()


def set_up(page, **settings):
    page.click('#settings-open')
    for k, v in settings.items():
        page.fill(f'#set-{k}', v)
    page.click('#settings button[type=submit]')


def conversation(browser, port):
    page = page_of(browser, port)
    figures = lambda: {l.split()[0]: float(l.split()[1]) for l in ask(port, '/metrics').splitlines() if not l.startswith('#')}
    page.wait_for_timeout(4000)
    n = figures()
    point(n['thermo_requests_total'] == 0 and n['thermo_passes_total'] == 0, 'a page that is open asks the model for nothing')
    set_up(page, temperature='0', max_tokens='20', system=KIND)
    say(page, 'Once upon a time')
    messages = [{'role': 'system', 'content': KIND}, {'role': 'user', 'content': 'Once upon a time'}]
    first = json.loads(ask(port, '/v1/chat/completions', {'messages': messages, 'temperature': 0, 'max_tokens': 20}))['choices'][0]['message']['content']
    clean = lambda t: ' '.join(t.split())
    point(clean(last(page)) == clean(first), "an answer is the server's, with the settings' system prompt", f'{last(page)!r} {first!r}')
    point('as many tokens as the settings allow' in page.locator('.turn.model').last.inner_text() and '20 tokens' in last(page, '.figures'), 'why it ended, and what it took')
    say(page, 'And then?')
    messages += [{'role': 'assistant', 'content': first}, {'role': 'user', 'content': 'And then?'}]
    second = json.loads(ask(port, '/v1/chat/completions', {'messages': messages, 'temperature': 0, 'max_tokens': 20}))['choices'][0]['message']['content']
    point(clean(last(page)) == clean(second), 'the second one continues the conversation', f'{last(page)!r} {second!r}')
    point('read before' in last(page, '.figures'), 'of which what was read before is not read again', last(page, '.figures'))
    whole = page.locator('#talk').inner_text()
    page.reload()
    expect(page.locator('#model')).not_to_be_empty()
    point(page.locator('#talk').inner_text() == whole, 'reloaded, it is there')
    expect(page.locator('#speed b')).not_to_be_empty()
    expect(page.locator('#memory tr')).not_to_have_count(0)
    say(page, 'More, please.')
    page.wait_for_timeout(2500)
    shown = {k: page.locator(f'#{k}').inner_text() for k in ('speed', 'memory', 'facts', 'machine-state')}
    point(re.match(r'[\d.,]+', shown['speed']) and 'Hot neurons' in shown['memory'] and 'MiB' in shown['memory'] and '256 tokens' in shown['facts'] and 'Idle' in shown['machine-state'],
          'the machine: speed, memory by item, the model', str(shown))
    asked = []
    page.click('#machine-open')
    page.wait_for_timeout(500) # what was under way
    page.on('request', lambda r: asked.append(r.url))
    page.wait_for_timeout(4000)
    point(not asked, 'nothing is looked at while nobody sees it', str(asked))
    page.click('#new')
    point(page.locator('.turn').count() == 0, 'a new conversation is empty')
    page.get_by_text('Bring the last conversation back').click()
    point(page.locator('.turn').count() == 6, 'the last one comes back')
    page.click('#settings-open')
    point(not page.locator('#set-model').is_visible(), 'one model: no choice')
    page.context.close()


def stop_and_reload(browser, port):
    Model.script = [(200, ['Hm', ', well.'], [f'word {k} ' for k in range(300)], .05, 'stop')]
    page = page_of(browser, port)
    say(page, 'Go on for long.', wait=False)
    page.get_by_text('word 3 ').wait_for()
    page.click('#stop')
    ready(page)
    point(Model.gone.wait(5), 'Stop closes the connection')
    text = last(page)
    point('word 3' in text and 'word 299' not in text and page.get_by_text('Stopped.', exact=True).count() == 1, 'what had come stays', text[-80:])
    point(page.locator('.thought').count() == 1 and not page.locator('.thought').first.get_attribute('open') and page.locator('.thought summary').inner_text() == 'Thoughts',
          'a thought is folded')
    page.click('.thought summary')
    point('Hm, well.' in page.locator('.thought').inner_text(), 'and unfolds')
    Model.gone.clear()
    say(page, 'Again.', wait=False)
    page.locator('.turn.model').last.get_by_text('word 3 ').wait_for()
    page.keyboard.press('Escape')
    ready(page)
    point(Model.gone.wait(5), 'so does Escape')
    say(page, 'Once more.', wait=False)
    page.locator('.turn.model').last.get_by_text('word 40 ').wait_for()
    page.fill('#ask', 'a draft')
    page.reload()
    point('word 3' in last(page) and 'the page was left' in page.locator('.turn.model').last.inner_text(), 'reloaded in the middle of an answer, what had come is there', page.locator('.turn.model').last.inner_text()[-160:])
    point(page.input_value('#ask') == 'a draft', 'and what was being written')
    page.context.close()


def editing(browser, port):
    Model.script = [(200, [], ['one'], 0, 'stop'), (200, [], ['two'], 0, 'stop'), (200, [], ['three'], 0, 'stop'), (200, [], ['four'], 0, 'stop')]
    page = page_of(browser, port)
    say(page, 'first')
    say(page, 'second')
    page.get_by_label('Edit this message').first.click()
    page.get_by_label('Your message, edited').fill('other')
    page.get_by_label('Your message, edited').press('Enter')
    ready(page)
    point(page.locator('.turn').count() == 2 and last(page) == 'three' and [m['content'] for m in Model.asked[-1]['messages']] == ['other'], 'an edited message begins a branch')
    page.get_by_label('Earlier version').first.click()
    point(page.locator('.turn').count() == 4 and last(page) == 'two', 'what was there before is not lost')
    page.get_by_label('Later version').first.click()
    page.get_by_label('Try this answer again').click()
    ready(page)
    point(last(page) == 'four' and page.get_by_text('2 of 2').count() == 2, 'an answer is tried again beside the old one')
    Model.script = [(429, [], [], 0, 0), (200, [], ['five'], 0, None)]
    say(page, 'third')
    point('no room It may have room in 7 s.' in page.locator('.turn.model').last.inner_text(), 'an error is said, and when to come again', page.locator('.turn.model').last.inner_text())
    page.get_by_label('Try this answer again').last.click()
    ready(page)
    point('five' in last(page) and 'broke off' in page.locator('.turn.model').last.inner_text(), 'an answer without an end is said to be one')
    Model.script = [(400, [], [], 0, 0), (200, [], ['six'], 0, 'length')]
    say(page, 'fourth')
    point(last(page) == 'six' and Model.asked[-1]['messages'][0]['content'] == 'third' and page.locator('#skipped').count() == 1,
          'where the context is full the oldest turns go, which is said', str(Model.asked[-1]['messages']))
    point('the context of 256 tokens is full' in page.locator('.turn.model').last.inner_text(), 'and an answer that it cut says so')
    page.context.close()


def hostile(browser, port):
    Model.script = [(200, [HOSTILE], [HOSTILE[i:i + 11] for i in range(0, len(HOSTILE), 11)], .005, 'stop')]
    page = page_of(browser, port)
    asked = []
    page.on('request', lambda r: asked.append(r.url))
    say(page, HOSTILE)
    page.reload()
    page.wait_for_timeout(300)
    point(page.evaluate("[...document.querySelectorAll('#talk *')].every(e => /^(ARTICLE|H[2-6]|DIV|P|SPAN|BUTTON|BR|A|CODE|PRE|TABLE|THEAD|TBODY|TR|TH|TD|BLOCKQUOTE|DETAILS|SUMMARY)$/.test(e.tagName))"),
          'what a model writes makes no element but those of Markdown')
    links = page.evaluate("[...document.querySelectorAll('#talk a')].map(a => [a.href, a.rel])")
    point(links and all(re.match(r'https?://(good|evil)\.example/', h) and 'noopener' in r for h, r in links), 'links lead to addresses of http alone', str(links))
    point(page.evaluate('window.pwned') is None and all(f'//127.0.0.1:{port}/' in u for u in asked), 'nothing of it runs or is loaded', str(asked))
    point('<script>window.pwned=1</script>' in last(page), 'it is text')
    took = page.evaluate('''all => all.map(text => { const to = document.createElement('div'), t = performance.now(); show_text(to, text);
                            return [text.slice(0, 8), Math.round(performance.now() - t), to.textContent.length > 0]; })''', LONG)
    point(all(ms < 3000 for _, ms, _ in took), 'long texts of marks take no time to speak of', str(took))
    for text, want in MARKS:
        got = page.evaluate(BARE, text)
        point(got == want, f'Markdown: {text[:30]!r}', f'{got}\n{want}')
    page.context.close()


def looks(browser, port):
    sample = '# A title\n\nText with `code` and [a link](https://good.example).\n\n| a | b |\n|--|--|\n| ' + 'long ' * 30 + '| c |\n\n```python\ndef f(a):  # a note\n    return "x" * 12' + ' ' * 90 + \
        '+ 1\n```\n\n' + 'x' * 300
    for width, scheme in ((1280, 'light'), (1280, 'dark'), (375, 'light'), (375, 'dark')):
        Model.script = [(200, ['Hm.'], [sample], 0, 'length'), (429, [], [], 0, 0)]
        page = page_of(browser, port, width, 700, scheme)
        say(page, 'y' * 300)
        say(page, 'Go on.')
        wide = page.evaluate('document.documentElement.scrollWidth')
        out = page.evaluate("[...document.querySelectorAll('button, textarea')].filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect()).filter(r => r.left < 0 || r.right > innerWidth || r.height < 24 || r.width < 24).length")
        point(wide <= width and out == 0, f'{width} pixels, {scheme}: nothing is beside it, nothing too small to touch', f'{wide} {out}')
        names, rules = page.evaluate(NAMES), page.evaluate(RULES)
        point(not names and not rules, f'{width}, {scheme}: everything has a name, names lead somewhere', str(names + rules))
        bad = page.evaluate(CONTRAST)
        if width == 375:
            page.click('#machine-open')
        page.wait_for_timeout(500)
        bad += page.evaluate(CONTRAST)
        point(page.evaluate('document.documentElement.scrollWidth') <= width and page.locator('#machine').is_visible(), f'{width}, {scheme}: beside the machine too')
        if width == 375:
            page.click('#machine-close')
        page.click('#settings-open')
        bad += page.evaluate(CONTRAST)
        point(not bad, f'{width}, {scheme}: what is written can be read', '\n'.join(bad))
        point(page.evaluate("document.querySelector('#settings').getBoundingClientRect().right <= innerWidth"), f'{width}, {scheme}: settings fit')
        page.context.close()


def keyboard(browser, port):
    Model.script = [(200, [], ['one\n', '```sh\nls\n```'], 0, 'stop')]
    page = page_of(browser, port)
    focus = lambda: page.evaluate("(e => e.id || e.getAttribute('aria-label') || e.textContent || e.tagName)(document.activeElement)")
    point(focus() == 'ask', 'the message has the focus')
    page.keyboard.type('a line')
    page.keyboard.press('Shift+Enter')
    page.keyboard.type('another')
    page.keyboard.press('Enter')
    ready(page)
    point(Model.asked[-1]['messages'][-1]['content'] == 'a line\nanother' and focus() == 'ask', 'Shift+Enter begins a line, Enter sends')
    order = []
    for _ in range(40):
        page.keyboard.press('Tab')
        order.append(focus())
    order = order[order.index('Skip to the message'):] if 'Skip to the message' in order else order
    want = ['Skip to the message', 'new', 'settings-open', 'machine-open', 'talk', 'Edit this message', 'Copy this message', 'Copy sh', 'sh, a block', 'Try this answer again', 'Copy this answer', 'ask', 'send']
    at = [order.index(w) if w in order else -1 for w in want]
    point(-1 not in at and at == sorted(at), 'Tab comes to everything, in order', str(order))
    page.focus('#settings-open')
    page.keyboard.press('Enter')
    page.keyboard.type('Be brief.')
    page.keyboard.press('Tab')
    page.keyboard.type('0.5')
    page.keyboard.press('Escape')
    point(focus() == 'settings-open', 'Escape closes the settings, and the focus is where it was', focus())
    page.get_by_label('Edit this message').focus()
    page.keyboard.press('Enter')
    point(focus() == 'Your message, edited', 'a message is edited')
    page.keyboard.press('Escape')
    point(focus() == 'Edit this message', 'or not', focus())
    page.keyboard.press('Enter')
    page.keyboard.type(' more')
    page.keyboard.press('Enter')
    ready(page)
    q = Model.asked[-1]
    point(q['messages'] == [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'a line\nanother more'}] and q['temperature'] == .5, 'and sent, with the settings', str(q))
    page.keyboard.press('Shift+Tab')
    page.get_by_label('Earlier version').focus()
    page.keyboard.press('Enter')
    point(page.locator('.turn.user .body').inner_text() == 'a line\nanother' and focus() in ('Earlier version', 'Later version', 'Edit this message'), 'versions', focus())
    page.context.close()


def with_key(browser, port):
    page = page_of(browser, port)
    page.locator('#door').wait_for(state='visible')
    page.keyboard.type('wrong')
    page.keyboard.press('Enter')
    page.get_by_text('does not know this key').wait_for()
    page.locator('#key').fill(KEY)
    page.keyboard.press('Enter')
    page.locator('#door').wait_for(state='hidden')
    set_up(page, max_tokens='5')
    say(page, 'Hello')
    point('5 tokens' in last(page, '.figures'), 'the key is asked for, and again where it is wrong')
    page.reload()
    say(page, 'Hello')
    point('5 tokens' in last(page, '.figures') and not page.locator('#door').is_visible(), 'and known when the page is loaded again')
    page.context.close()


def several(browser):
    """A choice where the server has several models, kept over a reload; none where it has one."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(PACK))
    for name in ('first', 'sec<b>ond'):
        os.mkdir(f'{folder}/{name}')
        os.symlink(PACK, f'{folder}/{name}/model.thermo')
        os.symlink(PLAN, f'{folder}/{name}/plan.json')
    server, port = start(['--models', folder])
    page = page_of(browser, port, 375)
    expect(page.locator('#model')).to_have_text('first')
    page.click('#settings-open')
    point(page.locator('#set-model option').all_inner_texts()[1:] == ['first', 'sec<b>ond'] and page.evaluate("document.querySelector('#settings').getBoundingClientRect().right <= innerWidth"),
          'several models: settings have a choice of them')
    page.select_option('#set-model', 'sec<b>ond')
    page.fill('#set-max_tokens', '5')
    page.click('#settings button[type=submit]')
    expect(page.locator('#model')).to_have_text('sec<b>ond')
    say(page, 'Hello')
    point(json.loads(ask(port, '/health'))['model'] == 'sec<b>ond' and '5 tokens' in last(page, '.figures'), 'which says who answers')
    page.reload()
    expect(page.locator('#model')).to_have_text('sec<b>ond')
    set_up(page, max_tokens='6')
    page.click('#settings-open')
    point(page.locator('#set-model').input_value() == 'sec<b>ond', 'and stays, reloaded')
    page.select_option('#set-model', 'first')
    page.click('#settings button[type=submit]')
    say(page, 'Again')
    point(json.loads(ask(port, '/health'))['model'] == 'first' and '6 tokens' in last(page, '.figures'), 'until another one is chosen')
    page.context.close()
    server.terminate()
    return server


def main():
    server, real = serve()
    Model.real = real
    made_up = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Model)
    threading.Thread(target=made_up.serve_forever, daemon=True).start()
    port = made_up.server_port
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=os.environ['CHROMIUM'], args=['--no-sandbox'])
        conversation(browser, real)
        stop_and_reload(browser, port)
        editing(browser, port)
        hostile(browser, port)
        looks(browser, port)
        keyboard(browser, port)
        guarded, locked = serve(THERMO_API_KEY=KEY)
        with_key(browser, locked)
        guarded.terminate()
        both = several(browser)
        browser.close()
    point(not faults, 'no error in the console, no dialog', '\n'.join(faults))
    server.terminate()
    point(server.wait(60) == 0 and guarded.wait(60) == 0 and both.wait(60) == 0, 'the servers end with exit status 0')
    done()


main()
