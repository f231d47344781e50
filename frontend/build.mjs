// Builds the script and the style of the view into src/omnigraph_lake/view/assets.
//
//   npm install && npm run build
//
// The versions are pinned in package.json. The result is committed, so a wheel needs no Node.
import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = dirname(fileURLToPath(import.meta.url));
const assets = process.env.ASSETS ?? join(home, "..", "src", "omnigraph_lake", "view", "assets");
const options = { bundle: true, minify: true, legalComments: "none", charset: "ascii" };

const script = await build({
  ...options,
  entryPoints: [join(home, "src", "main.js")],
  format: "iife",
  target: ["es2020"],
  write: false,
  metafile: true,
});
await build({
  ...options,
  entryPoints: [join(home, "src", "view.css"), join(home, "src", "report.css")],
  outdir: assets,
});

const text = script.outputFiles[0].text;
const checked = text.toLowerCase().replaceAll("http://www.w3.org/2000/svg", ""); // a namespace
for (const banned of ["</script", "<!--", "http://", "https://"]) {
  const place = checked.indexOf(banned);
  if (place >= 0) throw new Error(`the bundle contains ${banned}: ${checked.slice(place - 40, place + 60)}`);
}
await writeFile(join(assets, "view.js"), text);

const packages = new Set();
for (const input of Object.keys(script.metafile.inputs)) {
  const inside = input.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)/);
  if (inside) packages.add(inside[0]);
}
const notices = [];
for (const folder of [...packages].sort()) {
  const about = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const names = await readdir(folder);
  const licence = names.find((name) => /^licen[cs]e/i.test(name));
  const body = licence ? await readFile(join(folder, licence), "utf8") : "";
  notices.push(`${about.name} ${about.version} (${about.license})\n\n${body.trim()}\n`);
}
await writeFile(
  join(assets, "LICENSES.txt"),
  "view.js contains these packages:\n\n" + notices.join("\n" + "-".repeat(72) + "\n\n"),
);
console.log(`view.js ${text.length} bytes, with ${[...packages].length} packages`);
