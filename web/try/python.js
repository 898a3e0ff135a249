// The worker as the page sees it: ask a question, stop.
export class Python {
  #worker; #waiting = new Map(); #next = 0; #report;

  // report: called with {step}, {ready} or {failed} while Python starts.
  constructor(report) {
    this.#report = report;
    this.#start();
  }

  #start() {
    this.#worker = new Worker("worker.js", { type: "module" });
    this.#worker.onmessage = ({ data }) => {
      if (!("id" in data)) return this.#report(data);
      this.#waiting.get(data.id)?.(data);
      this.#waiting.delete(data.id);
      if (data.reply.broken) this.stop();
    };
    this.#worker.onerror = (event) => this.#report({ failed: event.message || "the worker did not start" });
  }

  // Promise of {reply, ms}; of null if it is stopped.
  ask(question) {
    return new Promise((resolve) => {
      this.#waiting.set(++this.#next, resolve);
      this.#worker.postMessage({ id: this.#next, question });
    });
  }

  // End the worker, whatever it does, and start another one.
  stop() {
    this.#worker.terminate();
    for (const resolve of this.#waiting.values()) resolve(null);
    this.#waiting.clear();
    this.#start();
  }
}
