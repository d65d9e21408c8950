// An MCP server over standard input and output, for tests of the page: its tool `draw` returns an
// image.

import readline from 'node:readline';

const PIXELS = 'iVBORw0KGgoAAAANSUhEUgAAADAAAAAgCAIAAADbtmxLAAAAMUlEQVR42u3OQQ0AAAgEoGtkIINbxxbOBxsBSPW8EiEhISEhISEhISEhISEhISGhSwvmxkZ5UaOiigAAAABJRU5ErkJggg==';

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    initialize: { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'media', version: '1' } },
    'tools/list': { tools: [{ name: 'draw', description: 'Draws a picture.', inputSchema: { type: 'object', properties: {} }, annotations: { readOnlyHint: true } }] },
    'tools/call': { content: [{ type: 'text', text: 'a blue square' }, { type: 'image', data: PIXELS, mimeType: 'image/png' }] },
  };
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] ?? {} }));
});
