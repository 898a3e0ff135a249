// What a visitor downloads: each file of the page, as it is and gzipped.
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

export const LIMIT = 11_000_000; // bytes, gzipped

export function downloads(folder) {
  const files = fs
    .readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath ?? entry.path, entry.name))
    .sort()
    .map((file) => {
      const content = fs.readFileSync(file);
      return { name: path.relative(folder, file), raw: content.length, gzip: gzipped(content) };
    });
  return { files, total: files.reduce((sum, file) => sum + file.gzip, 0) };
}

const gzipped = (content) => Math.min(content.length, zlib.gzipSync(content, { level: 9 }).length);
