// Browsers start no worker for a page that was opened as a file. The search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.scope = frame.contentWindow
      this.scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      const script = frame.contentDocument.createElement("script")
      this.ready = new Promise(resolve => script.addEventListener("load", resolve))
      script.src = url
      frame.contentDocument.body.append(script)
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
  window.Worker = window.IFrameWorker
}
