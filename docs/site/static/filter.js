// The list of statements: show those of the chosen paper, subject and question whose text has all the words.
(function () {
    "use strict";
    const list = document.querySelector("ul.statements");
    const form = document.querySelector("form.filters");
    if (!list || !form) return;
    const items = Array.from(list.children);
    const texts = items.map((item) => item.textContent.toLowerCase());
    const count = document.querySelector(".statements-count");

    function chosen() {
        return Array.from(form.elements).filter((field) => field.name && field.value);
    }

    function fits(item, text, fields) {
        return fields.every((field) =>
            field.name === "words"
                ? field.value.toLowerCase().split(/\s+/).every((word) => text.includes(word))
                : (item.dataset[field.name] || "").split(" ").includes(field.value));
    }

    function show() {
        const fields = chosen();
        let shown = 0;
        items.forEach((item, index) => {
            item.hidden = !fits(item, texts[index], fields);
            shown += item.hidden ? 0 : 1;
        });
        count.textContent = shown + " of " + items.length + " statements";
        const query = fields.map((field) => field.name + "=" + encodeURIComponent(field.value)).join("&");
        try { history.replaceState(null, "", query ? "#" + query : location.pathname); } catch { /* a page from a folder may not */ }
    }

    new URLSearchParams(location.hash.slice(1)).forEach((value, name) => {
        if (form.elements[name]) form.elements[name].value = value;
    });
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    show();
})();
