"""The interactive session of `edgellm chat`.

repl              the loop: reads a message, shows the answer
lines             the editor and the plain lines that messages come from; completer (Tab), typed_path (paths as typed)
conversation      the exchanges of one chat: ask, answer again, undo
slash_commands    /help and the others; session_commands (/undo, /fork, /file, /save, /load, /copy), settings (/set),
                  context_view (/context)
switching         the model of the chat: opened, replaced (/model); guide (rules that answer for the bundled model)
session_store     saved chats on the disk, written by conversation after each answer; resuming finds the one to resume
"""
