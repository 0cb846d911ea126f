import { useState } from 'react';
import { parseSize, understood, type Parsed, type Rules } from '../lib/size';
import { TextInput } from './TextInput';

// SizeField is what a form has of a size: the text, and what that is read as.
export interface SizeField {
  text: string;
  setText: (text: string) => void;
  parsed: Parsed;
}

// useSize is a size of a form. The form must not be sent while it is an error.
export function useSize(initial: string, rules: Rules): SizeField {
  const [text, setText] = useState(initial);
  return { text, setText, parsed: parseSize(text, rules) };
}

interface Props {
  label: string;
  size: SizeField;
  // refusal is what the API said of the size that it was sent.
  refusal?: string | undefined;
  // note is what is to be said of a size that is right.
  note?: string | undefined;
  takesFocus?: boolean;
}

// SizeInput takes a size as people write it, and says beside it how that is understood, or why it is refused, before it is sent.
export function SizeInput({ label, size, refusal, note, takesFocus }: Props) {
  const { text, setText, parsed } = size;
  const wrong = 'error' in parsed ? parsed.error : undefined;
  return (
    <TextInput
      label={label}
      value={text}
      onChange={setText}
      error={text === '' ? undefined : wrong}
      refusal={refusal}
      description={'error' in parsed ? 'A number with a unit: Mi, Gi, Ti, M, G or T. Example: 10Gi' : [understood(parsed), note].filter((t) => t !== undefined).join('. ')}
      {...(takesFocus ? { takesFocus } : {})}
    />
  );
}
