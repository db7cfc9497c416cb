// Search runs in a Worker, which browsers refuse to pages that were opened from the disk. There its
// place is taken by a hidden frame: the script finds the functions it expects around it, and
// messages go both ways as before. Elsewhere nothing changes.
"use strict";

class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = (this.inside = this.frame.contentWindow);
    inside.document.open(); // or the first, empty page may be replaced later, and the script with it
    inside.document.write("<!doctype html><title>Worker</title><body></body>");
    inside.document.close();
    inside.postMessage = (data) => this.tell(this, MessageEvent, data);
    inside.importScripts = async (...addresses) => {
      for (const one of addresses) await this.load(one);
    };
    this.ready = this.load(address);
    this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error })));
  }

  async load(address) {
    const script = this.inside.document.createElement("script");
    const done = new Promise((loaded, failed) => {
      script.onload = loaded;
      script.onerror = () => failed(new Error(`${address} cannot be loaded`));
    });
    script.src = new URL(address, location.href);
    this.inside.document.body.append(script);
    await done;
  }

  async postMessage(data) {
    await this.ready;
    this.tell(this.inside, this.inside.MessageEvent, data);
  }

  tell(target, Kind, data) {
    target.dispatchEvent(new Kind("message", { data: structuredClone(data) }));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
