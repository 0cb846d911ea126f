import { useEffect, useState } from 'react';
import { Tab, TabList, TabPanel, Tabs } from 'react-aria-components';
import type { Resource } from '../../api/types';

// Source shows the resource as the API sends it, as YAML and as JSON.
export function Source({ resource }: { resource: Resource }) {
  const [open, setOpen] = useState(false);
  return (
    <section className="card" aria-label="Source">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <h2>YAML and JSON</h2>
        </summary>
        {open && (
          <Tabs>
            <TabList aria-label="Format" className="tabs">
              <Tab id="yaml">YAML</Tab>
              <Tab id="json">JSON</Tab>
            </TabList>
            <TabPanel id="yaml">
              <YAML resource={resource} />
            </TabPanel>
            <TabPanel id="json">
              <Text text={JSON.stringify(resource, null, 2)} />
            </TabPanel>
          </Tabs>
        )}
      </details>
    </section>
  );
}

// YAML loads the YAML library only when the user opens the part.
function YAML({ resource }: { resource: Resource }) {
  const [text, setText] = useState('');
  useEffect(() => {
    let current = true;
    void import('yaml').then(({ stringify }) => {
      if (current) setText(stringify(resource));
    });
    return () => {
      current = false;
    };
  }, [resource]);
  return <Text text={text} />;
}

function Text({ text }: { text: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <pre className="source" tabIndex={0}>
      {text}
    </pre>
  );
}
