// Rules for the page's scripts, which run in a browser as modules without a build.
import js from "@eslint/js";

const GLOBALS =
  "Blob Node URL URLSearchParams addEventListener clearTimeout document fetch history innerWidth " +
  "location navigator scrollTo scrollY setTimeout";

export default [
  js.configs.recommended,
  {
    languageOptions: {
      globals: Object.fromEntries(GLOBALS.split(" ").map((name) => [name, "readonly"])),
    },
    rules: {
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "no-shadow-restricted-names": "error",
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
    },
  },
];
