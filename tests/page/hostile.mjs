// Texts for the tests of the page.

/** Texts that must never become markup, requests or a broken layout. */
export const HOSTILE = [
  '<script>window.broken=1</script>', '<img src=x onerror=window.broken=1>', '<svg onload=window.broken=1>',
  '"><script>window.broken=1</script>', '<iframe src=javascript:window.broken=1>', '</textarea><script>window.broken=1</script>',
  '<style>body{display:none}</style>', '<link rel=stylesheet href=http://127.0.0.1:9/x.css>', '<base href=http://127.0.0.1:9/>',
  '<meta http-equiv=refresh content=0;url=http://127.0.0.1:9/>', '[a](javascript:window.broken=1)', '[a](data:text/html,<script>1</script>)',
  '![x](http://127.0.0.1:9/x.png)', '<http://127.0.0.1:9/>', '[a](vbscript:1)', '[a]( javascript:1)', '&lt;script&gt;window.broken=1&lt;/script&gt;',
  '\u202Eevil\u202C', '\u2066isolated', '\u200Bzero', '\u0000\u0001\u0007', '\uFEFFmark', '\uFFFE\u{10FFFF}', 'a\u0300'.repeat(300), '﷽'.repeat(50),
  '|a|b|\n|-|-|\n|<script>window.broken=1</script>|x|', '```html\n<script>window.broken=1</script>\n```', '`<img src=x onerror=window.broken=1>`',
  '# <script>window.broken=1</script>', '- <script>window.broken=1</script>', '> <script>window.broken=1</script>', '**<b onclick=window.broken=1>x</b>**',
  '*'.repeat(2000), '['.repeat(2000), '`'.repeat(2001), '|'.repeat(2000) + '\n|-|', '\n'.repeat(2000) + 'end', '#'.repeat(500), '>'.repeat(500),
  'x'.repeat(1_000_000), ' '.repeat(100_000) + 'y', 'word '.repeat(20_000), '${window.broken=1}', '{{window.broken=1}}', "';window.broken=1//",
  'javascript:window.broken=1', 'expression(window.broken=1)', 'url(http://127.0.0.1:9/)', '@import "http://127.0.0.1:9/x.css";',
  '<math><mi xlink:href="javascript:window.broken=1">', '<object data="http://127.0.0.1:9/">', '<embed src="http://127.0.0.1:9/">',
  '<form action="http://127.0.0.1:9/"><button>x</button></form>', '<a href="http://127.0.0.1:9/" ping="http://127.0.0.1:9/">x</a>',
  '<video src="http://127.0.0.1:9/">', '<audio autoplay src="http://127.0.0.1:9/">', '<input autofocus onfocus=window.broken=1>',
  '<details open ontoggle=window.broken=1>', '<marquee onstart=window.broken=1>', '<template><script>window.broken=1</script></template>',
  '__proto__', 'constructor', '<!--', ']]>', '<?xml version="1.0"?>',
];

