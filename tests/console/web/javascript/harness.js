// A minimal test runner: test_javascript_units.py calls `run` in the browser.

/** @type {[name: string, body: () => unknown][]} */
const tests = [];

/**
 * @param {string} name
 * @param {() => unknown} body
 */
export function test(name, body) {
  tests.push([name, body]);
}

/**
 * Compares values by their JSON; `undefined` equals only itself.
 *
 * @param {unknown} actual
 * @param {unknown} expected
 */
export function equal(actual, expected) {
  const [is, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== wanted) throw new Error(`${is} is not ${wanted}`);
}

/** Runs all tests and returns pairs of their name and their error, or null. */
export async function run() {
  const results = [];
  for (const [name, body] of tests) {
    try {
      await body();
      results.push([name, null]);
    } catch (error) {
      results.push([name, String(error.stack ?? error)]);
    }
  }
  return results;
}
