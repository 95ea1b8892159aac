// Asks for chat completions with OpenAI's SDK, one after the other, and prints a line of JSON for
// each: whether it succeeded and how long it took in milliseconds, the SDK's own retries included.
//
//   node ask.cjs MODULES BASE_URL COUNT
//
// MODULES is the directory in which the package openai is installed.
'use strict';

const { createRequire } = require('node:module');
const [modules, baseURL, count] = process.argv.slice(2);
const { OpenAI } = createRequire(modules + '/')('openai');

async function main() {
  const client = new OpenAI({ apiKey: 'sk-test', baseURL, maxRetries: 1, timeout: 60_000 });
  for (let i = 0; i < Number(count); i++) {
    const start = performance.now();
    const result = {};
    try {
      const completion = await client.chat.completions.create({
        model: 'stub',
        messages: [{ role: 'user', content: 'hello' }],
      });
      result.content = completion.choices[0].message.content;
    } catch (error) {
      result.status = error.status;
      result.error = String(error.message);
    }
    result.milliseconds = Math.round(performance.now() - start);
    console.log(JSON.stringify(result));
  }
}

main();
