import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// budget is the maximum size of all files together, compressed, in bytes.
const budget = 300_000;

// packed compresses each built file and removes the original: the program stores and sends the compressed files.
function packed() {
  return {
    name: 'packed',
    apply: 'build',
    async writeBundle(options) {
      const root = options.dir ?? '.';
      let total = 0;
      for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const name = join(entry.parentPath ?? entry.path, entry.name);
        const small = gzipSync(await readFile(name), { level: 9 });
        await writeFile(`${name}.gz`, small);
        await rm(name);
        total += small.length;
      }
      this.info(`all files compressed: ${total} bytes of ${budget}`);
      if (total > budget) this.error(`the page has ${total} bytes compressed, more than ${budget}`);
    },
  };
}

export default defineConfig({
  plugins: [react(), packed()],
  build: {
    outDir: 'page/built',
    emptyOutDir: true,
    assetsInlineLimit: 0, // the content security policy allows no data: URLs
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
    chunkSizeWarningLimit: Infinity, // the budget above is the limit
  },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
