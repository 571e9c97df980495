# Writes OUTPUT: a C++ file with the text of every file of FILES as a raw string.
set(text "#include \"embedded/${FUNCTION}.h\"\nnamespace sublet::embedded {\nstd::string_view ${FUNCTION}(std::string_view name) {\n")
foreach(file IN LISTS FILES)
  file(READ ${file} content)
  get_filename_component(name ${file} NAME)
  string(APPEND text "  if (name == \"${name}\") {\n    return R\"sublet_embed(${content})sublet_embed\";\n  }\n")
endforeach()
string(APPEND text "  return {};\n}\n}  // namespace sublet::embedded\n")
file(WRITE ${OUTPUT} "${text}")
