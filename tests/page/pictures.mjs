// Takes the pictures of the page for the book: node pictures.mjs BINARY FOLDER
//
// An agent and a team work on small tasks with a scripted model server, and Chromium takes pictures
// of the chat, the graph and the comparison.

import fs from 'node:fs';
import path from 'node:path';

import { cleanUp, launch, modelServer, open, pause, place, start, startRun, stop, TOKEN } from './harness.mjs';

const [binary, folder] = process.argv.slice(2);
const work = path.join(place, 'work');

const TABLE = `| port | morning | evening | height |
|---|---|---|---|
| Dover | 06:12 | 18:41 | 6.8 m |
| Brest | 03:58 | 16:22 | 7.1 m |`;

const PLAN = { steps: [
  { id: 'ports', agent: 'Thinker', description: 'Choose the ports to compare', prompt: 'Choose five ports on the Channel.', reads: [], writes: ['ports'] },
  { id: 'season', agent: 'Thinker', description: 'Choose the dates of spring tides', prompt: 'Choose dates.', reads: [], writes: ['dates'] },
  ...['dover', 'calais', 'brest', 'cherbourg', 'plymouth'].map((port) => ({ id: port, agent: 'Retriever', description: `Collect the tides of ${port}`, prompt: `Collect the tides of ${port}.`, reads: ['ports', 'dates'], writes: [port] })),
  { id: 'heights', agent: 'Coder', description: 'Compute the ranges', prompt: 'Compute the ranges.', reads: ['dover', 'calais', 'brest'], writes: ['heights'] },
  { id: 'times', agent: 'Coder', description: 'Compute the delays', prompt: 'Compute the delays.', reads: ['brest', 'cherbourg', 'plymouth'], writes: ['times'] },
  { id: 'check', agent: 'QA', description: 'Check the numbers', prompt: 'Check the numbers.', reads: ['heights', 'times'], writes: ['checked'] },
  { id: 'report', agent: 'Summarizer', description: 'Write the report', prompt: 'Write the report.', reads: ['checked'], writes: ['report'] },
] };

const failed = new Set();

async function reply({ goal, system, results, messages }, { text, think, call }) {
  if (/^# Planner/.test(system)) return text(JSON.stringify(PLAN));
  const step = goal.match(/step `([a-z]+)`/)?.[1];
  if (step) {
    const slow = { brest: 60_000, cherbourg: 60_000, plymouth: 900 }[step] || 500;
    if (step === 'calais' && !failed.has(step)) {
      failed.add(step);
      return text('The source is down.');
    }
    await pause(slow);
    const { writes } = PLAN.steps.find((one) => one.id === step);
    return text(JSON.stringify({ [writes[0]]: `what ${step} found` }));
  }
  if (JSON.stringify(messages).includes('Use one short sentence.')) return text('High water is earlier and higher at **Brest**: 16:22 and 7.1 m, against 18:41 and 6.8 m at Dover.');
  if (results === 0) {
    for (const word of 'The two files have the tides. I read both, compare the evening tides, and write the table.'.split(' ')) think(`${word} `);
    text('I read the two tide tables first.');
    call('read_file', { path: 'tides/dover.csv' });
    return call('read_file', { path: 'tides/brest.csv' });
  }
  if (results <= 2) {
    for (const part of ['Both tables are complete. Today, high water is **2 h 19 min earlier** at Brest:\n\n', TABLE, '\n\nI write this table to `tides.md`.']) {
      text(part);
      await pause(30);
    }
    return call('write_file', { path: 'tides.md', content: `# High water today\n\n${TABLE}\n` });
  }
  return text(`High water comes 2 h 19 min earlier at **Brest**, and rises 0.3 m more. The table is in \`tides.md\`.\n\n${TABLE}`);
}

async function main() {
  fs.mkdirSync(path.join(work, 'tides'), { recursive: true });
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(work, 'tides/dover.csv'), 'day,high water,height\n2026-05-04,06:12,6.6\n2026-05-04,18:41,6.8\n');
  fs.writeFileSync(path.join(work, 'tides/brest.csv'), 'day,high water,height\n2026-05-04,03:58,6.9\n2026-05-04,16:22,7.1\n');
  const model = await modelServer(reply);
  const models = path.join(place, 'models.json');
  fs.writeFileSync(models, JSON.stringify({ models: { 'house:large': { window: 131_072, max_output: 8192, capabilities: { tools: true, output_schema: false, images: false, thinking: true }, price: { input: 3, output: 15 } } },
    servers: { house: { api: 'chat', base_url: `http://127.0.0.1:${model.address().port}/v1`, key: 'HOUSE_API_KEY', default: 'large' } } }));
  const env = { LEVITY_MODELS: models, HOUSE_API_KEY: 'none' };
  const common = ['--workspace', work, '--model', 'house:large', '--listen', '127.0.0.1:0'];
  const agent = await start(binary, ['serve', 'http', '--journal', path.join(place, 'agent'), '--ask', 'write_file', ...common], env);
  const team = await start(binary, ['serve', 'http', '--offer', 'team', '--journal', path.join(place, 'team'), ...common], env);
  const browser = await launch();
  const save = (page, name) => page.screenshot({ path: path.join(folder, `page-${name}.png`) });
  try {
    const light = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
    const page = await open(light, agent.origin);
    for (const goal of ['Summarize the open issues', 'List the ports with data']) {
      await startRun(page, goal);
      await page.waitForSelector('.chat .ask');
      await page.click('.chat .ask >> text=Allow');
      await page.waitForSelector('.head .badge.s-answered');
    }
    await startRun(page, 'Compare today’s high water at Dover and Brest, and write the table to tides.md');
    await page.waitForSelector('.chat .ask');
    await page.waitForTimeout(400);
    await save(page, 'chat');
    await page.click('.chat .ask >> text=Allow');
    await page.waitForSelector('.head .badge.s-answered');
    await page.click('.fork summary');
    await page.fill('.popup textarea', 'Use one short sentence.');
    await page.click('.timeline >> text=Fork from here');
    await page.waitForSelector('.answers article');
    if (await page.locator('.chat .ask').count()) await page.click('.chat .ask >> text=Allow');
    await page.waitForSelector('.head .badge.s-answered');
    await page.waitForTimeout(400);
    await save(page, 'compare');

    const dark = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'dark' });
    const graph = await open(dark, team.origin, `#token=${TOKEN}`);
    await startRun(graph, 'Compare the spring tides of five ports on the Channel');
    await graph.click('#tab-graph');
    await graph.waitForSelector('.box.s-running:has-text("brest")');
    await graph.waitForSelector('.box.s-completed:has-text("plymouth")');
    await graph.waitForTimeout(500);
    await graph.click('text=Show all');
    await graph.click('.box:has-text("heights")');
    await graph.waitForTimeout(400);
    await graph.keyboard.press('Escape');
    await graph.waitForTimeout(300);
    await save(graph, 'graph');
  } finally {
    await browser.close();
    await stop(agent, 'SIGKILL');
    await stop(team, 'SIGKILL');
    model.closeAllConnections();
    model.close();
    await cleanUp();
  }
  console.log(`pictures are in ${folder}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
