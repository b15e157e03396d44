from h2o_chat.cli.cli import main

main()
