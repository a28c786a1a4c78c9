#include "program.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

namespace {

int fail(const std::string &message) {
  std::cout.flush();
  std::cerr << "exattn: " << message << "\n";
  return exattn::program::kExitBadInput;
}

int run(int argc, char **argv) {
  int exit_code = exattn::program::kExitSame;
  CLI::App app("Fused attention with the same bits everywhere.", "exattn");
  app.set_version_flag("--version", std::string("exattn ") + exattn_version() + ", definition " + exattn_definition());
  app.require_subcommand(0, 1); // none is refused below, with a better message
  app.footer("Exit codes: 0 same or done, 1 differs, 2 usage or bad input.\n"
             "Each subcommand has its own --help, with an example.");
  exattn::program::add_attention(app, exit_code);
  exattn::program::add_softmax(app, exit_code);
  exattn::program::add_compare(app, exit_code);
  exattn::program::add_conformance(app, exit_code);
  exattn::program::add_functions(app, exit_code);
  exattn::program::add_info(app, exit_code);
  exattn::program::add_bench(app, exit_code);
  exattn::program::add_audit(app, exit_code);
  for (int n = 1; n < argc; ++n) { // an unset variable of a script must not pass for "not given"
    const std::string argument = argv[n];
    if (argument.empty() || (argument.starts_with("--") && argument.ends_with('='))) {
      return fail("argument " + std::to_string(n) + " is empty" +
                  (n > 1 ? ", after " + std::string(argv[n - 1]) : std::string()) +
                  ": give a value, or leave the option out");
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error); // --help, --version
    } else {
      const std::vector<CLI::App *> commands = app.get_subcommands();
      return fail(std::string(error.what()) + " (see exattn " +
                  (commands.empty() ? "" : commands.front()->get_name() + " ") + "--help)");
    }
    return exattn::program::kExitSame;
  }
  if (app.get_subcommands().empty()) {
    std::string names;
    for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; })) {
      names += (names.empty() ? "" : ", ") + command->get_name();
    }
    return fail("a subcommand is required: " + names + " (see exattn --help)");
  }
  if (!std::cout.flush()) {
    return fail("standard output cannot be written");
  }
  return exit_code;
}

} // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc &) {
    return fail("out of memory");
  } catch (const std::exception &error) {
    return fail(error.what());
  }
}
