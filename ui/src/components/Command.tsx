import { useRef, useState } from 'react';
import { Button } from './Button';

type Copied = 'no' | 'yes' | 'selected';

const words: Record<Copied, string> = { no: 'Copy', yes: '✓', selected: 'Selected: copy it with the keyboard' };

// Command is a line for a shell, with a button that copies it. If the browser does not allow the page to copy, for
// example over plain HTTP, the button selects the line instead.
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState<Copied>('no');
  const line = useRef<HTMLElement>(null);
  const select = () => {
    if (line.current !== null) getSelection()?.selectAllChildren(line.current);
    setCopied('selected');
  };
  const copy = () => {
    // The types do not show that clipboard may be undefined.
    const clipboard = navigator.clipboard as Clipboard | undefined;
    if (clipboard === undefined) select();
    else void clipboard.writeText(text).then(() => setCopied('yes'), select);
  };
  return (
    <div className="command">
      <code ref={line}>{text}</code>
      <Button look="quiet" aria-label={copied === 'no' ? 'Copy the command' : copied === 'yes' ? 'Copied' : words.selected} onPress={copy}>
        {words[copied]}
      </Button>
    </div>
  );
}
