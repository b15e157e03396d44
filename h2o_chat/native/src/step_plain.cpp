#include "lanes_plain.h"
#include "step.h"
#include "change.h"
#include "prompt.h"

const Form form_plain = {decode, embed, before, after, head, change, attend_pass};
