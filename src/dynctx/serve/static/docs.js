// The API as /openapi.json describes it, as tables.

const element = (tag, text, className) => {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
};

function typeOf(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, all)).join(" or ");
  if (schema.enum) return schema.enum.join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items, all)}`;
  if (schema.type === "object" && schema.additionalProperties) return `object of ${typeOf(schema.additionalProperties, all)}`;
  return schema.type || "";
}

function fields(title, schema, all) {
  const found = schema?.type === "array" ? schema.items : schema;
  const whole = found?.$ref ? all[found.$ref.split("/").pop()] : found;
  if (!whole?.properties) return [];
  const table = element("table");
  for (const [name, one] of Object.entries(whole.properties)) {
    const row = table.appendChild(element("tr"));
    row.append(element("th", name + (whole.required?.includes(name) ? "" : " (optional)")));
    row.append(element("td", typeOf(one, all)), element("td", one.description || ""));
  }
  return [element("h3", title), table];
}

function route(path, method, about, all) {
  const section = element("section", "", "route");
  const title = section.appendChild(element("h2"));
  title.append(element("span", method.toUpperCase(), "method"), path);
  section.append(element("p", about.description || "", "help"));
  const body = about.requestBody?.content["application/json"]?.schema;
  if (body) section.append(...fields(`Body: ${Object.keys(about.requestBody.content).join(", ")}`, body, all));
  const answer = about.responses["200"]?.content?.["application/json"]?.schema;
  section.append(...fields(answer?.type === "array" ? "Answer: a list of" : "Answer", answer, all));
  const errors = Object.keys(about.responses).filter((code) => code >= 400 && code !== "422");
  if (errors.length) section.append(element("p", `Errors: ${errors.join(", ")}, each {"error": reason}`, "help"));
  return section;
}

const description = await (await fetch("/openapi.json")).json();
const all = { ...description.components?.schemas };
document.getElementById("routes").replaceChildren(
  ...Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => route(path, method, about, all))),
);
