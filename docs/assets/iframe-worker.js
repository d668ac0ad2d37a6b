/* A page that is opened from disk may not start a worker. There, the search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(
        "<!doctype html><body><script>" +
          "self.postMessage = data => parent.postMessage({ worker: true, data }, '*');" +
          "self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {" +
          "const script = document.createElement('script'); script.src = url; script.onload = done;" +
          "script.onerror = done; document.body.appendChild(script); })), Promise.resolve());" +
          "</" + "script></body>"
      );
      inside.close();
      const script = inside.createElement("script");
      script.src = url;
      this.waiting = [];
      script.onload = () => {
        this.ready = true;
        this.waiting.forEach(data => this.postMessage(data));
      };
      inside.body.appendChild(script);
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow || !event.data || !event.data.worker) return;
        const message = new MessageEvent("message", { data: event.data.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data);
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
