"use strict";

// A file of its own, for the page's policy allows no script within it. Swagger's own validator would be asked over the
// internet, and a key that was typed in is forgotten with the page.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
});
